"""From a table of lengths and arrival times to requests: start offset, cut, rescaling, predictions, ids."""

from __future__ import annotations

import numpy as np
import pandas as pd

from olp_ray.config.workload import ArrivalsConfig
from olp_ray.core.types import Request
from olp_ray.errors import WorkloadError
from olp_ray.workload.arrivals import draw_arrivals
from olp_ray.workload.predictors import Predictor
from olp_ray.workload.request import SimRequest


def make_requests(
    frame: pd.DataFrame,
    predictor: Predictor,
    seed: int,
    *,
    count: int | None = None,
    rate: float | None = None,
    rotate: bool = True,
    arrivals: ArrivalsConfig | None = None,
) -> list[SimRequest]:
    """Requests in order of arrival; string order of ids is that order.

    rotate starts a trace at a row that the seed draws, and goes round; count keeps the first so many from there;
    rate (requests per second) stretches the arrival times; with arrivals they are drawn anew, at the rate or else at
    the table's own. The seed also draws the predictor's errors.
    """
    if frame.empty:
        raise WorkloadError("the workload is empty; expected at least one request")
    offset_rng, error_rng = (np.random.default_rng([seed, stream]) for stream in (0, 1))
    if rotate:
        frame = rotated(frame, int(offset_rng.integers(len(frame))))
    if count is not None:
        frame = frame.iloc[:count].reset_index(drop=True)
    if arrivals is not None:
        frame = _rearranged(frame, arrivals, rate, np.random.default_rng([seed, 3]))
    if rate is not None:
        frame = rescaled(frame, rate)
    predicted = predictor.checked(frame, error_rng)
    width = len(str(len(frame) - 1))
    optional = {name: frame[name].tolist() for name in OPTIONAL if name in frame}
    rows = zip(
        frame["arrived_at"].tolist(), frame["num_prefill_tokens"].tolist(), frame["num_decode_tokens"].tolist(),
        predicted.tolist(), strict=True,
    )  # fmt: skip
    return [
        SimRequest(
            Request(
                f"r{i:0{width}d}",
                arrived,
                prompt,
                guess,
                **{OPTIONAL[name]: values[i] for name, values in optional.items()},
            ),
            output,
        )
        for i, (arrived, prompt, output, guess) in enumerate(rows)
    ]


# column of a trace -> field of Request
OPTIONAL = {
    "tenant": "tenant",
    "priority": "priority",
    "request_class": "request_class",
    "model": "model",
    "session": "session",
    "prefix_blocks": "prefix_blocks",
    "max_output_tokens": "max_output_tokens",
}


def rotated(frame: pd.DataFrame, start: int) -> pd.DataFrame:
    """The trace from row `start` on and round; the wrap takes one mean gap."""
    times = frame["arrived_at"].to_numpy()
    span = times[-1] - times[0]
    gap = span / max(1, len(times) - 1)
    shifted = np.concatenate([times[start:], times[:start] + span + gap]) - times[start]
    order = np.r_[start : len(times), 0:start]
    return frame.take(order).reset_index(drop=True).assign(arrived_at=shifted)


def _rearranged(
    frame: pd.DataFrame, arrivals: ArrivalsConfig, rate: float | None, rng: np.random.Generator
) -> pd.DataFrame:
    """The same requests in the same order at new times."""
    times = frame["arrived_at"].to_numpy()
    span_s = float(times[-1] - times[0])
    own = (len(times) - 1) / span_s if span_s > 0 else 1.0
    return frame.assign(arrived_at=draw_arrivals(arrivals, len(frame), own if rate is None else rate, rng))


def rescaled(frame: pd.DataFrame, rate: float) -> pd.DataFrame:
    """The trace with its times stretched from 0 so that `rate` requests arrive per second on average.

    Raises `WorkloadError` when all requests arrive at once.
    """
    times = frame["arrived_at"].to_numpy()
    span = times[-1] - times[0]
    if span <= 0:
        raise WorkloadError(f"{len(times)} requests that arrive within {span} s can not be rescaled to a rate")
    own_rate = (len(times) - 1) / span
    return frame.assign(arrived_at=(times - times[0]) * (own_rate / rate))


def with_rate(requests: list[SimRequest], rate: float) -> list[SimRequest]:
    """Made requests with their arrival times stretched like `rescaled`."""
    import dataclasses

    times = pd.DataFrame({"arrived_at": [r.request.arrival_s for r in requests]})
    return [
        SimRequest(dataclasses.replace(r.request, arrival_s=float(t)), r.output_tokens)
        for r, t in zip(requests, rescaled(times, rate)["arrived_at"], strict=True)
    ]
