"""The two log tables, one row per request and one row per decision: their columns, types and version.

Simulated and live runs write the same tables, so a live log can be replayed. Columns are only ever added, with a new
version. No column of requests.parquet comes from a wall clock: equal seeds give equal files. Nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pandas as pd

SCHEMA_VERSION = 1


class Status(StrEnum):
    """How a request ended, at the end of the run."""

    FINISHED = "finished"
    REJECTED = "rejected"
    NEVER_STARTED = "never_started"
    UNFINISHED = "unfinished"  # started, not finished
    CANCELLED = "cancelled"


@dataclass(slots=True)
class RequestRow:
    """One row of requests.parquet. Times are in seconds on the run's clock, NaN when they never came.

    output_tokens is the true length, generated_tokens what came out. assigned_s, start_s and device_id are those of
    the last attempt; first_token_s is of the first. In the period model first_token_s is start_s, as in the paper.
    """

    request_id: str
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    predicted_output_tokens: float
    request_class: str
    model: str
    tenant: str
    session: str
    priority: int
    slo_ttft_s: float = float("nan")
    slo_e2e_s: float = float("nan")
    status: str = Status.NEVER_STARTED
    reject_reason: str = ""
    device_id: str = ""
    prefilled_s: float = float("nan")  # a prefill pool was done with it
    assigned_s: float = float("nan")
    start_s: float = float("nan")
    first_token_s: float = float("nan")
    finish_s: float = float("nan")
    generated_tokens: int = 0
    attempts: int = 0
    preemptions: int = 0
    cached_prompt_tokens: int = 0


class DecisionRow(NamedTuple):
    """One row of decisions.parquet, in the order in which decisions were made."""

    time_s: float
    request_id: str
    stage: str
    decision: str  # assign or reject
    device_id: str
    incarnation: int
    attempt: int
    waited_s: float
    reject_reason: str
    limit: str
    knob: str
    retry_after_s: float


class TimelineRow(NamedTuple):
    """One device at one time."""

    time_s: float
    device_id: str
    running: int
    queued: int  # in the engine's own queue
    kv_tokens: int
    router_waiting: int


_DTYPES = {str: "string", float: "float64", int: "int64"}


def columns(row_type: type) -> dict[str, str]:
    """Column name to pandas dtype of a row type."""
    return {name: _DTYPES[kind] for name, kind in get_type_hints(row_type).items()}


def frame(rows: Iterable[Any], row_type: type) -> pd.DataFrame:
    """A table with exactly the columns of row_type."""
    rows = list(rows)
    return pd.DataFrame(
        {name: pd.Series(list(map(attrgetter(name), rows)), dtype=kind) for name, kind in columns(row_type).items()}
    )


def write_parquet(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table with the schema version in its metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrow = pa.Table.from_pandas(table, preserve_index=False)
    metadata = {**(arrow.schema.metadata or {}), b"olp_ray_schema_version": str(SCHEMA_VERSION).encode()}
    pq.write_table(arrow.replace_schema_metadata(metadata), path)


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a table back."""
    return pd.read_parquet(path)


@dataclass(slots=True)
class Counters:
    """How often things happened."""

    handle_calls: int = 0
    events: int = 0
    wakes: int = 0
    decisions: int = 0
    boundaries: int = 0  # looked at; the engine's iterations are far more
    iterations: int = 0
    preemptions: int = 0
