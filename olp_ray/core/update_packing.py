"""One round of a price update as a packing LP, to measure how near `core.prices` comes to the exact dual prices.

Every sample of the round may start after each delay on each device; resources are the buckets of the look-ahead.
Prices beyond the look-ahead are the mean of its second half (`core.prices`), so what is used and free there is spread
over that half. The cap on prices is left out: the exact optimum is of the problem without it.

Notation
    symbol   meaning                                                        shape          unit
    S, G     samples of the round, devices
    La       buckets of the look-ahead
    D        bucket length                                                                 s
    use      slot-seconds and KV-token-seconds of an option in a bucket     (S, 4, G, 2, La)
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.kernels.records import DELAY_BUCKETS
from olp_ray.core.packing import Packing
from olp_ray.core.prices import PriceScalars, SampleColumn
from olp_ray.core.types import PriceWork


def round_packing(work: PriceWork, round_index: int) -> Packing:
    """The round's LP: its dual is what gradient steps descend, over prices of shape (G, 2, La), raveled."""
    ahead = look_ahead(work)
    bucket_s = PriceScalars(*work.scalars).bucket_s
    rows = np.flatnonzero(work.samples[:, SampleColumn.ROUND] == round_index)
    devices = len(work.step_s)
    use = _fold(_use(work, rows, bucket_s), ahead)
    free = np.maximum(work.capacity - work.occupied, 0.0) * bucket_s
    value = np.broadcast_to(work.value[rows], (len(rows), len(DELAY_BUCKETS), devices))
    sample, delay, device = np.nonzero(np.isfinite(value))
    option, resource, bucket = np.nonzero(use[sample, delay, device])
    return Packing(
        capacity=_fold(free, ahead).ravel(),
        value=value[sample, delay, device],
        group=sample,
        limit=work.samples[rows, SampleColumn.WEIGHT],
        row=(device[option] * 2 + resource) * ahead + bucket,
        option=option,
        coefficient=use[sample, delay, device][option, resource, bucket],
    )


def look_ahead(work: PriceWork) -> int:
    """La: how many buckets have prices of their own."""
    return min(int(PriceScalars(*work.scalars).lookahead_buckets), work.capacity.shape[2])


def _use(work: PriceWork, rows: np.ndarray, bucket_s: float) -> np.ndarray:
    """Slot-seconds and KV-token-seconds per bucket, (S, 4, G, 2, N); the last bucket takes in all that follows."""
    samples, buckets = work.samples[rows], work.capacity.shape[2]
    start = samples[:, SampleColumn.START_S, None] + DELAY_BUCKETS * bucket_s
    start = start[:, :, None, None]
    step_s = work.step_s[:, None]
    stop = start + samples[:, SampleColumn.OUTPUT_TOKENS, None, None, None] * step_s
    low = np.arange(buckets) * bucket_s
    high = np.append(low[1:], np.inf)
    first, last = np.maximum(start, low), np.minimum(stop, high)
    held_s = np.maximum(last - first, 0.0)
    grown = np.where(held_s > 0, ((last - start) ** 2 - (first - start) ** 2) / (2 * step_s), 0.0)
    prompt = samples[:, SampleColumn.PROMPT_TOKENS, None, None, None]
    return np.stack(np.broadcast_arrays(held_s, prompt * held_s + grown), axis=3)


def _fold(per_bucket: np.ndarray, ahead: int) -> np.ndarray:
    """What lies beyond the look-ahead spread evenly over its second half, along the last axis."""
    folded = per_bucket[..., :ahead].copy()
    half = ahead // 2
    folded[..., half:] += per_bucket[..., ahead:].sum(axis=-1, keepdims=True) / (ahead - half)
    return folded
