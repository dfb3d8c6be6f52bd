"""Turning text columns of a trace file into checked numbers; every fault names file, line, column, expected, actual.

Here live also the two marks of a table whose times are not the file's as they stand: made up, or put in order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from olp_ray.errors import WorkloadError

_UNTIMED, _SORTED = "no_arrival_times", "sorted_on_reading"  # in the attrs of a table


def mark_untimed(frame: pd.DataFrame) -> pd.DataFrame:
    """Say that the file has no arrival times and those of the table stand for none; returns the table."""
    frame.attrs[_UNTIMED] = True
    return frame


def is_timed(frame: pd.DataFrame) -> bool:
    """Whether the arrival times are the file's own."""
    return not frame.attrs.get(_UNTIMED, False)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows by arrival, marked where that changed their order."""
    if frame["arrived_at"].is_monotonic_increasing:
        return frame.reset_index(drop=True)
    ordered = frame.sort_values("arrived_at", kind="stable", ignore_index=True)
    ordered.attrs[_SORTED] = True
    return ordered


def was_sorted(frame: pd.DataFrame) -> bool:
    """Whether the file's requests stood in another order than that of their arrivals."""
    return bool(frame.attrs.get(_SORTED, False))


class RawTable:
    """Text columns of a file, and the line that each row came from."""

    def __init__(self, path: Path, table: pd.DataFrame, first_line: int) -> None:
        self.path = path
        self.table = table
        self._first_line = first_line

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, column: str) -> bool:
        return column in self.table.columns

    def numbers(self, column: str, least: float, whole: bool = False, most: float = np.inf) -> np.ndarray:
        """The column as float64 or int64. Raises `WorkloadError` at the first that is no number in least..most."""
        text = self.table[column]
        values = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64)
        kind = "a whole number" if whole else "a number"
        with np.errstate(invalid="ignore"):
            inside = np.isfinite(values) & (values >= least) & (values <= most)
            wrong = ~inside | (whole & (values != np.floor(values)))
        self.raise_at(wrong, column, f"{kind} >= {least:g}" if most == np.inf else f"{kind} from {least:g} to {most:g}")
        return values.astype(np.int64) if whole else values

    def numbers_lists(self, column: str) -> list[tuple[int, ...]]:
        """Whole numbers joined by `;`, or nothing, in every row. Raises `WorkloadError` at the first other value."""
        text = self.table[column].fillna("")
        self.raise_at(~text.str.fullmatch(r"(-?\d+(;-?\d+)*)?").to_numpy(dtype=bool), column, "numbers like 4;17;5")
        return [tuple(int(part) for part in row.split(";")) if row else () for row in text]

    def times(self, column: str) -> np.ndarray:
        """Dates and times as seconds since the earliest, float64."""
        stamps = pd.to_datetime(self.table[column], format="ISO8601", errors="coerce", utc=True)
        self.raise_at(stamps.isna().to_numpy(), column, "a date and time like 2023-11-16 18:15:46.680590")
        nanoseconds = stamps.dt.as_unit("ns").astype("int64").to_numpy()
        return np.asarray((nanoseconds - nanoseconds.min()) / 1e9, dtype=np.float64)

    def raise_at(self, wrong: np.ndarray, column: str, expected: str) -> None:
        """Name the first row for which wrong (bool, one per row) holds, if any."""
        if not wrong.any():
            return
        row = int(np.flatnonzero(wrong)[0])
        value = self.table[column].iloc[row]
        shown = "nothing" if pd.isna(value) else repr(str(value))
        raise WorkloadError(
            f"{self.path}, line {self._first_line + row}, column {column!r}: expected {expected}, got {shown}"
        )
