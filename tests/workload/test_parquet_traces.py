"""Parquet files: chats as they are published, and the log of a run, replayed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.errors import WorkloadError
from olp_ray.sim import simulate
from olp_ray.workload import generate, make_requests, parse_predictor, read_trace

# the columns of LMSYS-Chat-1M's files
CHATS = [
    {
        "conversation_id": name,
        "model": "vicuna-13b",
        "conversation": [
            {"content": "how do you do", "role": "user"},
            {"content": answer, "role": "assistant"},
            {"content": "go on", "role": "user"},
            {"content": "ok", "role": "assistant"},
        ],
        "turn": 2,
        "language": "English",
        "redacted": False,
    }
    for name, answer in (("c1", "fine"), ("c2", "a" * 100))
]


def test_lmsys_chats(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(CHATS), tmp_path / "train-00000-of-00006.parquet")
    frame = read_trace(tmp_path / "train-00000-of-00006.parquet")
    assert frame["session"].tolist() == ["c1", "c1", "c2", "c2"]
    assert frame["num_prefill_tokens"].tolist() == [4, 4 + 1 + 2, 4, 4 + 25 + 2]
    assert frame["num_decode_tokens"].tolist() == [1, 1, 25, 1]


def test_a_run_is_replayed_from_its_log(tmp_path: Path) -> None:
    requests = make_requests(generate("lmsys", 30, 5.0, 0), parse_predictor("perfect"), 0, rotate=False)
    fleet = FleetConfig.parse("1xa100-8b")
    router = build_priced_router(RouterConfig(policy="round_robin"), fleet, "timed", 0)
    simulate(requests, fleet, "timed", router, update_s=1.0).save(tmp_path)
    frame = read_trace(tmp_path / "requests.parquet")
    first_s = requests[0].request.arrival_s
    assert frame["arrived_at"].tolist() == pytest.approx([r.request.arrival_s - first_s for r in requests])
    assert frame["num_decode_tokens"].tolist() == [r.output_tokens for r in requests]


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"a": [1]}, r"columns \['a'\] are of no known format; expected conversation; or arrival_s"),
        (
            {"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 1], "output_tokens": [5, 0]},
            r"row 2, column 'output_tokens': expected a number >= 1, got .*0",
        ),
        (
            {"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 1], "output_tokens": [5, 5], "priority": [0, -101]},
            r"row 2, column 'priority': expected a number from -100 to 100, got .*-101",
        ),
        ({"conversation": ["text"]}, r"row 1, key 'conversation': expected a list of turns, got str"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, table: dict, expected: str) -> None:
    pd.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(WorkloadError, match=expected):
        read_trace(tmp_path / "t.parquet")


def test_half_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(WorkloadError, match=r"t\.parquet: not a readable parquet file"):
        read_trace(tmp_path / "t.parquet")
