"""Traces in parquet files: chats as LMSYS-Chat-1M ships them, and requests.parquet of a run, to be replayed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from olp_ray.core.types.requests import MOST_PRIORITY
from olp_ray.errors import WorkloadError
from olp_ray.workload.json_traces import CHAT_KEYS, read_chats

PARQUET = b"PAR1"  # first bytes of a parquet file
LOG = {"arrival_s": "arrived_at", "prompt_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"}
LOG_EXTRAS = ("tenant", "priority", "request_class", "model", "session")


def read_parquet(path: Path, data: bytes) -> pd.DataFrame:
    """Read chats or a run's log. Raises `WorkloadError` naming file, row, key, expected and actual."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(io.BytesIO(data))
    except pa.ArrowInvalid as error:
        raise WorkloadError(f"{path}: not a readable parquet file: {error}") from error
    columns = file.schema_arrow.names
    for key in CHAT_KEYS:
        if key in columns:
            names = [name for name in ("conversation_id", "id", key) if name in columns]
            return read_chats(path, _rows(file, names), key)
    if set(LOG) <= set(columns):
        return _log(path, file.read().to_pandas())
    raise WorkloadError(f"{path}: columns {columns} are of no known format; expected conversation; or {', '.join(LOG)}")


def _rows(file: Any, columns: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows with where they are, a batch at a time: chats are long."""
    number = 0
    for batch in file.iter_batches(columns=columns):
        for row in batch.to_pylist():
            number += 1
            yield f"row {number}", row


def _log(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Requests of a run, whatever became of them."""
    kept = [name for name in LOG_EXTRAS if name in table]
    bounds = {"arrival_s": (0.0, np.inf), "prompt_tokens": (0, np.inf), "output_tokens": (1, np.inf)}
    if "priority" in kept:
        bounds["priority"] = (-MOST_PRIORITY, MOST_PRIORITY)
    for column, (least, most) in bounds.items():
        wrong = ~table[column].between(least, most)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            allowed = f">= {least:g}" if most == np.inf else f"from {least:g} to {most:g}"
            raise WorkloadError(
                f"{path}, row {row + 1}, column {column!r}: expected a number {allowed}, got {table[column][row]!r}"
            )
    return table[[*LOG, *kept]].rename(columns=LOG)
