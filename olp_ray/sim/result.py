"""What a simulation gives back, and how it is written to a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from olp_ray.sim.records import Counters, write_parquet


@dataclass(frozen=True, slots=True)
class Result:
    """Tables of one run; `records` has their columns.

    requests has one row for every request that arrived, decisions one for every decision. timeline is None unless it
    was asked for. end_s is the last simulated instant, busy_s the time that each device spent in iterations.
    """

    requests: pd.DataFrame
    decisions: pd.DataFrame
    timeline: pd.DataFrame | None
    counters: Counters
    end_s: float
    busy_s: dict[str, float]

    @property
    def utilisation(self) -> float:
        """Mean share of time that devices spent in iterations."""
        return sum(self.busy_s.values()) / (len(self.busy_s) * self.end_s) if self.end_s > 0 else 0.0

    def save(self, folder: str | Path) -> None:
        """Write requests.parquet, decisions.parquet and, where there is one, timeline.parquet."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_parquet(self.requests, folder / "requests.parquet")
        write_parquet(self.decisions, folder / "decisions.parquet")
        if self.timeline is not None:
            write_parquet(self.timeline, folder / "timeline.parquet")
