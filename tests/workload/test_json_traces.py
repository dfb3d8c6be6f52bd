"""Mooncake lines and chats, as their publishers ship them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from olp_ray.errors import WorkloadError
from olp_ray.workload import read_trace

MOONCAKE = [
    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 48]},
    {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 47, 99]},
]
SHAREGPT = [
    {
        "id": "QWJhYvA_0",
        "conversations": [
            {"from": "human", "value": "a" * 40},
            {"from": "gpt", "value": "b" * 400},
            {"from": "human", "value": "é" * 20},
            {"from": "gpt", "value": "d" * 9},
        ],
    }
]
LMSYS = [
    {
        "conversation_id": "x1",
        "model": "vicuna-13b",
        "turn": 1,
        "conversation": [{"role": "user", "content": "hello there"}, {"role": "assistant", "content": "Hi!"}],
    },
    {
        "conversation_id": "x2",
        "model": "vicuna-13b",
        "turn": 1,
        "conversation": [{"role": "user", "content": "four"}, {"role": "assistant", "content": "words of an answer"}],
    },
]


def lines(folder: Path, entries: list[Any]) -> Path:
    path = folder / "trace.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n")
    return path


def test_mooncake(tmp_path: Path) -> None:
    frame = read_trace(lines(tmp_path, MOONCAKE))
    assert frame["arrived_at"].tolist() == pytest.approx([0.0, 3.053])
    assert frame["num_prefill_tokens"].tolist() == [6955, 6472]
    assert frame["prefix_blocks"].tolist() == [(46, 47, 48), (46, 47, 99)]


def test_sharegpt_makes_one_request_per_answer(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(SHAREGPT))
    frame = read_trace(path)
    assert frame["num_prefill_tokens"].tolist() == [10, 120]  # 10; 10 + 100 + 10 (two bytes per letter)
    assert frame["num_decode_tokens"].tolist() == [100, 3]
    assert set(frame["session"]) == {"QWJhYvA_0"}


def test_lmsys_chats(tmp_path: Path) -> None:
    frame = read_trace(lines(tmp_path, LMSYS))
    assert frame["arrived_at"].tolist() == [0.0, 1.0]
    assert frame["num_prefill_tokens"].tolist() == [3, 1]
    assert frame["num_decode_tokens"].tolist() == [1, 5]


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        (
            [*MOONCAKE, {**MOONCAKE[0], "output_length": 0}],
            r"line 3, key 'output_length': expected a number >= 1, got 0",
        ),
        ([MOONCAKE[0], {"timestamp": 1}], r"line 2, key 'input_length': expected a number >= 0, got None"),
        (
            [MOONCAKE[0], {**MOONCAKE[0], "hash_ids": [1, "x"]}],
            r"line 2, key 'hash_ids': expected a list of whole numbers, got \[1, 'x'\]",
        ),
        ([{"foo": 1}], r"line 1: keys \['foo'\] are of no known format"),
        ([MOONCAKE[0], 7], r"line 2: expected an object, got int"),
        ([{"conversations": "text"}], r"line 1, key 'conversations': expected a list of turns, got str"),
        ([{"conversation": [{"role": "user"}]}], r"expected turns with a role and a text"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, entries: list[Any], error: str) -> None:
    with pytest.raises(WorkloadError, match=error):
        read_trace(lines(tmp_path, entries))


def test_a_fault_in_json_lines_names_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(MOONCAKE[0]) + "\n\n" + '{"timestamp": 1, oops}\n')
    with pytest.raises(WorkloadError, match=r"line 3, column 18"):
        read_trace(path)
    path.write_text('[\n{"timestamp": 1},\n{"timestamp" 2}\n]')
    with pytest.raises(WorkloadError, match=r"line 3, column 14"):
        read_trace(path)


def test_line_separators_inside_a_chat_do_not_end_a_line(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "a\u2028b"}, {"role": "assistant", "content": "yes"}]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"conversation_id": "u", "conversation": turns}, ensure_ascii=False) + "\n")
    assert len(read_trace(path)) == 1


def test_broken_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"timestamp": 1,\n')
    with pytest.raises(WorkloadError, match=r"trace\.jsonl: expected a JSON array or one JSON object per line"):
        read_trace(path)
