"""JSON traces: Mooncake's lines, and ShareGPT's and LMSYS's chats; chats also as rows of other files.

Chats hold text, not tokens: without a tokenizer a text of n bytes counts ceil(n / 4) tokens. They hold no times either:
conversations come one per second, to be rescaled, and the turns of one conversation follow each other in its session.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from olp_ray.errors import WorkloadError
from olp_ray.workload.columns import mark_untimed

BYTES_PER_TOKEN = 4
CHAT_KEYS = ("conversations", "conversation")  # ShareGPT's and LMSYS's


def read_json(path: Path, text: str) -> pd.DataFrame:
    """Read a JSON array or JSON lines. Raises `WorkloadError` naming file, line or entry, key, expected and actual."""
    entries = list(_entries(path, text))
    first = entries[0][1] if entries else {}
    if {"timestamp", "input_length", "output_length"} <= first.keys():
        return pd.DataFrame([_mooncake(path, where, entry) for where, entry in entries])
    for key in CHAT_KEYS:
        if key in first:
            return read_chats(path, entries, key)
    raise WorkloadError(
        f"{path}, {entries[0][0] if entries else 'top'}: keys {sorted(first)} are of no known format; expected "
        "timestamp, input_length, output_length; or conversations; or conversation"
    )


def read_chats(path: Path, entries: Iterable[tuple[str, dict[str, Any]]], key: str) -> pd.DataFrame:
    """One request per answer in the list of turns under `key`; entries are (where in the file, chat)."""
    rows = [row for i, (where, entry) in enumerate(entries) for row in _turns(path, where, entry, key, i)]
    return mark_untimed(pd.DataFrame(rows))


def estimated_tokens(text: str) -> int:
    """ceil(bytes / 4)."""
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def _entries(path: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    parsed: list[tuple[str, Any]] = []
    number = 1  # line that the JSON text at hand starts in
    try:
        if text.lstrip().startswith("["):
            parsed = [(f"entry {i}", entry) for i, entry in enumerate(json.loads(text), start=1)]
        else:
            lines = enumerate(text.split("\n"), start=1)  # a chat may hold other line breaks inside its strings
            for number, line in lines:
                if line.strip():
                    parsed.append((f"line {number}", json.loads(line)))
    except json.JSONDecodeError as error:
        place = f"line {number - 1 + error.lineno}, column {error.colno}"
        raise WorkloadError(
            f"{path}: expected a JSON array or one JSON object per line: {place}: {error.msg}"
        ) from error
    for where, entry in parsed:
        if not isinstance(entry, dict):
            raise WorkloadError(f"{path}, {where}: expected an object, got {type(entry).__name__}")
        yield where, entry


def _mooncake(path: Path, where: str, entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "arrived_at": _number(path, where, entry, "timestamp", 0) / 1e3,
        "num_prefill_tokens": int(_number(path, where, entry, "input_length", 0)),
        "num_decode_tokens": int(_number(path, where, entry, "output_length", 1)),
        "prefix_blocks": _hashes(path, where, entry),
    }


def _hashes(path: Path, where: str, entry: dict[str, Any]) -> tuple[int, ...]:
    hashes = entry.get("hash_ids", [])
    if not isinstance(hashes, list) or not all(isinstance(h, int) and not isinstance(h, bool) for h in hashes):
        raise WorkloadError(f"{path}, {where}, key 'hash_ids': expected a list of whole numbers, got {hashes!r}")
    return tuple(hashes)


def _number(path: Path, where: str, entry: dict[str, Any], key: str, least: float) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise WorkloadError(f"{path}, {where}, key {key!r}: expected a number >= {least:g}, got {value!r}")
    return value


def _turns(path: Path, where: str, entry: dict[str, Any], key: str, index: int) -> Iterator[dict[str, Any]]:
    """One request per answer; its prompt is all text before it."""
    turns = entry.get(key)
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise WorkloadError(f"{path}, {where}, key {key!r}: expected a list of turns, got {type(turns).__name__}")
    prompt_tokens = 0
    for turn in turns:
        role, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if not isinstance(role, str) or not isinstance(text, str):
            raise WorkloadError(f"{path}, {where}, key {key!r}: expected turns with a role and a text, got {turn!r}")
        tokens = estimated_tokens(text)
        if role in ("gpt", "assistant", "chatgpt", "bing", "bard") and prompt_tokens and tokens:
            yield {
                "arrived_at": float(index),
                "num_prefill_tokens": prompt_tokens,
                "num_decode_tokens": tokens,
                "session": str(entry.get("id", entry.get("conversation_id", index))),
            }
        prompt_tokens += tokens
