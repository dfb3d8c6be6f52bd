"""What devices hold: decoded tokens, KV tokens and prompts of their residents now, and expected over buckets to come.

Notation
    symbol   meaning                                                        shape     unit     paper
    G, R     devices, columns for residents
    theta    tokens that a resident has decoded                             (G, R)    tokens   theta
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.lengths import remaining
from olp_ray.core.kernels.records import DECODED, KNOWN_S, PREDICTED, PROMPT, STARTED, Fleet, Ratios


@kernel
def decoded(held_by: np.ndarray, g: int, i: int, now_s: float, step_s: float) -> float:
    """theta of resident i of device g: last known tokens, carried on at the step time if it runs."""
    passed = max(now_s - held_by[KNOWN_S, g, i], 0.0) / step_s
    return held_by[DECODED, g, i] + held_by[STARTED, g, i] * passed


@kernel
def decoded_on(held_by: np.ndarray, g: int, residents: int, now_s: float, step_s: float) -> np.ndarray:
    """`decoded` of each resident of device g."""
    found = np.empty(residents)
    for i in range(residents):
        found[i] = decoded(held_by, g, i, now_s, step_s)
    return found


@part
def kv_on(held_by: np.ndarray, g: int, residents: int, now_s: float, step_s: float) -> float:
    """KV tokens of the residents of device g."""
    found = 0.0
    for i in range(residents):
        found += held_by[PROMPT, g, i] + decoded(held_by, g, i, now_s, step_s)
    return found


@kernel
def kv_held(
    held_by: np.ndarray, residents: np.ndarray, external: np.ndarray, now_s: float, step_s: np.ndarray
) -> np.ndarray:
    """KV tokens of the residents of each device and of external load, (G,)."""
    found = np.empty(len(residents))
    for g in range(len(residents)):
        found[g] = kv_on(held_by, g, residents[g], now_s, step_s[g]) + external[g]
    return found


@part
def backlog(tokens: float, at_s: float, rate: float, now_s: float) -> float:
    """Prompt tokens that are left of those of at_s, worked off at a rate per second; inf: at once."""
    return max(tokens - rate * max(now_s - at_s, 0.0), 0.0) if rate < math.inf else 0.0


@kernel
def backlogs(tokens: np.ndarray, at_s: np.ndarray, rate: np.ndarray, now_s: float) -> np.ndarray:
    """`backlog` of each device, (G,)."""
    found = np.empty(len(tokens))
    for g in range(len(tokens)):
        found[g] = backlog(tokens[g], at_s[g], rate[g], now_s)
    return found


@kernel
def expected_occupancy(
    fleet: Fleet, now_s: float, bucket_s: float, buckets: int, levels: np.ndarray, known: Ratios
) -> np.ndarray:
    """Slots and KV tokens in use per bucket, (G, 2, N), when residents end at these quantiles, each as often."""
    held_by, residents = fleet.held_by, fleet.residents
    found = np.zeros((len(residents), 2, buckets))
    for g in range(len(residents)):
        bucket_steps = bucket_s / fleet.step_s[g]
        ending = np.zeros((2, buckets + 1))
        for level in levels:
            at_level = np.zeros((2, buckets + 1))
            for i in range(residents[g]):
                theta, prompt = decoded(held_by, g, i, now_s, fleet.step_s[g]), held_by[PROMPT, g, i]
                left = remaining(theta, max(held_by[PREDICTED, g, i], 1.0), prompt - fleet.padding[g], level, known)
                last = int(min(np.ceil(left / bucket_steps), buckets))
                at_level[0, last] += 1.0
                at_level[1, last] += prompt + theta
            ending += at_level / len(levels)
        alive, kv = 0.0, 0.0
        for h in range(buckets - 1, -1, -1):
            alive += ending[0, h + 1]
            kv += ending[1, h + 1]
            found[g, 0, h] = alive + fleet.external_slots[g]
            found[g, 1, h] = kv + alive * ((h + 1) * bucket_steps) + fleet.external_kv_tokens[g]
    return found


@kernel
def mean(values: np.ndarray) -> float:
    """Of all values, added in order; nan of none."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values) if len(values) else math.nan


@kernel
def mean_step_s(step_s: np.ndarray) -> float:
    """Seconds of one mean iteration; 1 s (the paper's period) without devices."""
    return mean(step_s) if len(step_s) else 1.0
