"""Trace files as their publishers ship them, read into one table; the format is found from the file itself.

    arrived_at          float64, seconds, ascending from 0
    num_prefill_tokens  int64, >= 0
    num_decode_tokens   int64, >= 1
    and, where the file has them: tenant, priority (-100 to 100), request_class, model, session, prefix_blocks,
    max_output_tokens

What the requests are used for is not decided here.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from olp_ray.core.types.requests import MOST_PRIORITY
from olp_ray.errors import WorkloadError
from olp_ray.workload.columns import RawTable, in_order, mark_untimed
from olp_ray.workload.json_traces import read_json
from olp_ray.workload.parquet_traces import PARQUET, read_parquet

Read = Callable[[RawTable], pd.DataFrame]


class Mark(NamedTuple):
    """How a compressed file is known: the end of its name, and its first bytes."""

    suffix: str
    start: bytes


CODECS = {"gzip": Mark(".gz", b"\x1f\x8b"), "zstd": Mark(".zst", b"\x28\xb5\x2f\xfd")}


@dataclass(frozen=True, slots=True)
class TableFormat:
    """A CSV format: the columns by which it is known, and how it is read."""

    name: str
    needs: frozenset[str]
    read: Read


def read_trace(path: str | Path) -> pd.DataFrame:
    """Read a trace of any known format: CSV, JSON, JSON lines or parquet, plain or compressed with gzip or zstd.

    Raises `WorkloadError` naming file, line, column, expected and actual.
    """
    path = Path(path)
    data = _bytes(path)
    frame = read_parquet(path, data) if data.startswith(PARQUET) else _read_text(path, data)
    if frame.empty:
        raise WorkloadError(f"{path}: expected at least one request, got none")
    frame = in_order(frame)
    return frame.assign(arrived_at=frame["arrived_at"] - frame["arrived_at"].iloc[0])


def _bytes(path: Path) -> bytes:
    """The file's content, decompressed; gzip and zstd are known by the name's end or by the first bytes."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from error
    codec = next(
        (name for name, mark in CODECS.items() if path.suffix == mark.suffix or data.startswith(mark.start)), None
    )
    if codec is None:
        return data
    import pyarrow as pa

    try:
        return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())
    except OSError as error:
        raise WorkloadError(f"{path}: expected UTF-8 text in {codec}: {error}") from error


def _read_text(path: Path, data: bytes) -> pd.DataFrame:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise WorkloadError(f"{path}, line {line}: expected UTF-8 text: {error.reason}") from error
    if text.lstrip()[:1] in ("{", "["):
        return read_json(path, text)
    return _read_csv(path, text)


def _read_csv(path: Path, text: str) -> pd.DataFrame:
    try:
        table = pd.read_csv(io.StringIO(text), dtype=str, skip_blank_lines=False, skipinitialspace=True)
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise WorkloadError(f"{path}: not a readable CSV: {error}") from error
    table.columns = [str(name).strip() for name in table.columns]
    blank = table.isna().all(axis=1).to_numpy()
    while len(table) and blank[len(table) - 1]:
        table = table.iloc[: len(table) - 1]
    raw = RawTable(path, table, first_line=2)
    for known in FORMATS:
        if known.needs <= set(table.columns):
            return known.read(raw)
    choices = "; or ".join(", ".join(sorted(known.needs)) for known in FORMATS)
    raise WorkloadError(f"{path}, line 1: columns {list(table.columns)} are of no known format; expected {choices}")


def _common(raw: RawTable) -> pd.DataFrame:
    frame = _lengths(raw, "num_prefill_tokens", "num_decode_tokens", raw.numbers("arrived_at", 0.0))
    return frame.assign(**_extras(raw))


def _lengths_only(raw: RawTable) -> pd.DataFrame:
    """Lengths without times: one request per second, to be rescaled to the wanted rate."""
    times = np.arange(len(raw), dtype=np.float64)
    return mark_untimed(_lengths(raw, "num_prefill_tokens", "num_decode_tokens", times).assign(**_extras(raw)))


def _azure(raw: RawTable) -> pd.DataFrame:
    return _lengths(raw, "ContextTokens", "GeneratedTokens", raw.times("TIMESTAMP"))


def _burstgpt(raw: RawTable) -> pd.DataFrame:
    """Failed requests (no response tokens) are left out, as they never reached a batch."""
    frame = _lengths(raw, "Request tokens", "Response tokens", raw.numbers("Timestamp", 0.0), least_output=0)
    frame = frame.assign(request_class=raw.table["Model"].fillna("").to_numpy())
    if "Session ID" in raw:
        frame = frame.assign(session=raw.table["Session ID"].fillna("").to_numpy())
    return frame[frame["num_decode_tokens"] > 0].reset_index(drop=True)


def _splitwise(raw: RawTable) -> pd.DataFrame:
    return _lengths(raw, "prompt_size", "token_size", raw.numbers("arrival_timestamp", 0.0))


def _lengths(raw: RawTable, prompt: str, output: str, times: np.ndarray, least_output: int = 1) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "arrived_at": times,
            "num_prefill_tokens": raw.numbers(prompt, 0, whole=True),
            "num_decode_tokens": raw.numbers(output, least_output, whole=True),
        }
    )


def _extras(raw: RawTable) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    for column, field in _TEXT_EXTRAS.items():
        if column in raw:
            extras[field] = raw.table[column].fillna("").to_numpy(dtype=object)
    if "priority" in raw:
        extras["priority"] = raw.numbers("priority", -MOST_PRIORITY, whole=True, most=MOST_PRIORITY)
    if "max_output_tokens" in raw:
        extras["max_output_tokens"] = raw.numbers("max_output_tokens", 1, whole=True)
    if "hash_ids_512" in raw:
        extras["prefix_blocks"] = raw.numbers_lists("hash_ids_512")
    return extras


_TEXT_EXTRAS: Mapping[str, str] = {
    "tenant_id": "tenant",
    "client_id": "tenant",
    "tenant": "tenant",
    "request_class": "request_class",
    "model": "model",
    "session": "session",
}

FORMATS = (
    TableFormat("common", frozenset({"arrived_at", "num_prefill_tokens", "num_decode_tokens"}), _common),
    TableFormat("lengths", frozenset({"num_prefill_tokens", "num_decode_tokens"}), _lengths_only),
    TableFormat("azure", frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}), _azure),
    TableFormat("burstgpt", frozenset({"Timestamp", "Model", "Request tokens", "Response tokens"}), _burstgpt),
    TableFormat("splitwise", frozenset({"arrival_timestamp", "prompt_size", "token_size"}), _splitwise),
)
