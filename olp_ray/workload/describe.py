"""What a trace is like: its rate, its burstiness, its lengths; and writing it back in the common CSV."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from olp_ray.workload.columns import is_timed, was_sorted

QUANTILES = (50, 90, 99)


class Spread(NamedTuple):
    """Mean, quantiles in the order of `QUANTILES`, and the largest value."""

    mean: float
    quantiles: tuple[float, ...]
    largest: float


class Description(NamedTuple):
    """Times in seconds, lengths in tokens.

    gap_variation is the coefficient of variation of the times between arrivals: 1 for Poisson, above it for bursts.
    peak_to_mean compares the busiest of 60 equal spans with the mean. extras are the columns beyond the three of every
    trace, with how many different values each has. timed is whether the file holds arrival times: without them the four
    numbers about time are NaN. sorted_on_reading is whether the file's lines were in another order.
    """

    requests: int
    span_s: float
    rate_per_s: float
    gap_variation: float
    peak_to_mean: float
    prompt_tokens: Spread
    output_tokens: Spread
    extras: dict[str, int]
    timed: bool = True
    sorted_on_reading: bool = False


def describe(frame: pd.DataFrame) -> Description:
    """Numbers of a table with the columns of `olp_ray.workload.traces`; NaN where one request says nothing."""
    timed = is_timed(frame)
    times = frame["arrived_at"].to_numpy()
    span = float(times[-1] - times[0]) if timed else float("nan")
    gaps = np.diff(times)
    counts = np.histogram(times, bins=60)[0] if span > 0 else np.array([len(times)])
    extras = [name for name in frame.columns if name not in ("arrived_at", "num_prefill_tokens", "num_decode_tokens")]
    return Description(
        len(frame),
        span,
        (len(frame) - 1) / span if span > 0 else float("nan"),
        float(gaps.std() / gaps.mean()) if span > 0 else float("nan"),
        float(counts.max() / counts.mean()) if timed else float("nan"),
        _spread(frame["num_prefill_tokens"]),
        _spread(frame["num_decode_tokens"]),
        {name: int(frame[name].nunique()) for name in extras},
        timed,
        was_sorted(frame),
    )


def write_common(frame: pd.DataFrame, path: str | Path) -> None:
    """Write the common CSV, which `read_trace` reads back as it is; its folder is made where there is none."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    if "prefix_blocks" in frame:
        hashes = [";".join(map(str, blocks)) for blocks in frame["prefix_blocks"]]
        frame = frame.assign(hash_ids_512=hashes).drop(columns="prefix_blocks")
    frame.to_csv(path, index=False)


def _spread(values: pd.Series) -> Spread:
    quantiles = np.percentile(values, QUANTILES)
    return Spread(float(values.mean()), tuple(float(q) for q in quantiles), float(values.max()))
