"""How long the router's calls took: numbers of the wall clock of one machine, kept apart from the metrics of a run."""

from __future__ import annotations

import numpy as np
import pandas as pd


def summarise_calls(handle_times: pd.DataFrame) -> dict[str, float]:
    """Calls, and mean, p50, p99 and largest wall time of a call in ms; NaN without calls.

    handle_times has the columns of handle_times.parquet: one row for each call of `handle`.
    """
    wall_ms = 1e3 * handle_times["wall_s"].to_numpy(dtype=np.float64)
    if not len(wall_ms):
        return {"calls": 0.0, **dict.fromkeys(("mean_ms", "p50_ms", "p99_ms", "max_ms"), float("nan"))}
    p50, p99 = np.percentile(wall_ms, (50, 99))
    return {
        "calls": float(len(wall_ms)),
        "mean_ms": float(wall_ms.mean()),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "max_ms": float(wall_ms.max()),
    }
