"""The file of a sweep, `results.parquet`: one row per trial and seed.

Columns: trial (int), seed (int), `param.<router key>` of the point, and the metrics under their own names. The schema's
metadata hold the objectives, so that a front can be drawn from the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from olp_ray.errors import ConfigError

PARAM = "param."
_OBJECTIVES = b"olp_ray.objectives"


def write_results(path: Path, rows: Sequence[Mapping[str, Any]], objectives: Mapping[str, str]) -> None:
    """Write the rows in order of (trial, seed); the file appears whole or not at all."""
    ordered = sorted(rows, key=lambda row: (row["trial"], row["seed"]))
    table = pa.Table.from_pylist(ordered)
    table = table.replace_schema_metadata({_OBJECTIVES: json.dumps(dict(objectives)).encode()})
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial)
    partial.replace(path)


def read_results(path: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows and the objectives (metric -> min or max). Raises `ConfigError` when it is no file of a sweep."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file; `olp-ray sweep` writes it") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise ConfigError(f"{path}: not a parquet file: {' '.join(str(error).split())}") from error
    metadata = table.schema.metadata or {}
    if _OBJECTIVES not in metadata or not {"trial", "seed"} <= set(table.column_names):
        raise ConfigError(
            f"{path}: expected the results.parquet of a sweep, got columns {', '.join(table.column_names)}"
        )
    return table.to_pandas(), json.loads(metadata[_OBJECTIVES])
