"""What prices say about a life on a device, by prefix tables; what samples bid at prices, and how prices follow.

Every device is computed by itself, and what samples add to it in their order: results are the same to the bit however
a fleet is cut into blocks.

Notation
    symbol   meaning                                                        shape         unit
    G, N, S  devices, buckets, samples of a round
    t        time from now                                                                s
    tau      seconds per decode iteration                                   (G,)          s
    x        relative excess demand                                         (G, 2, N)
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.core.kernels.compiler import kernel, part
from olp_ray.core.kernels.records import (
    DELAY_BUCKETS,
    KV_INTEGRAL,
    KV_PRICE,
    PRICE_CAP,
    SLOT_INTEGRAL,
    SLOT_PRICE,
    TIMED_KV_INTEGRAL,
)


@kernel
def build_tables(prices: np.ndarray, bucket_s: float) -> np.ndarray:
    """Prefix tables (G, 5, N + 1) of prices (G, 2, N): both prices (last one repeated), the integrals of p_slot and
    p_kv from 0, and of u * p_kv(u)."""
    devices, _, buckets = prices.shape
    tables = np.zeros((devices, 5, buckets + 1))
    for g in range(devices):
        slot, kv, slots, kvs, timed = tables[g]
        for h in range(buckets):
            slot[h], kv[h] = prices[g, 0, h], prices[g, 1, h]
            low, high = h * bucket_s, (h + 1) * bucket_s
            slots[h + 1] = slots[h] + slot[h] * bucket_s
            kvs[h + 1] = kvs[h] + kv[h] * bucket_s
            timed[h + 1] = timed[h] + kv[h] * ((high * high - low * low) / 2)
        slot[buckets], kv[buckets] = slot[buckets - 1], kv[buckets - 1]
    return tables


@kernel
def integrals(table: np.ndarray, bucket_s: float, t: float) -> tuple[float, float, float]:
    """Integrals from 0 to t of p_slot, p_kv and u * p_kv(u) on a device; beyond the last bucket its price goes on."""
    bucket = int(min(t / bucket_s, table.shape[1] - 1))
    edge = bucket * bucket_s
    beyond = t - edge
    slot = table[SLOT_PRICE, bucket] * beyond + table[SLOT_INTEGRAL, bucket]
    kv = table[KV_PRICE, bucket] * beyond + table[KV_INTEGRAL, bucket]
    timed = table[KV_PRICE, bucket] * (beyond * (t + edge) / 2) + table[TIMED_KV_INTEGRAL, bucket]
    return slot, kv, timed


@kernel
def life_cost(
    table: np.ndarray, bucket_s: float, start_s: float, prompt_tokens: float, life_s: float, step_s: float
) -> float:
    """Price of one slot and a growing KV cache on a device, in O(1) (eq. 10); see `core.prices.life_cost`."""
    slot_0, kv_0, timed_0 = integrals(table, bucket_s, start_s)
    slot_1, kv_1, timed_1 = integrals(table, bucket_s, start_s + life_s)
    kv = kv_1 - kv_0
    growth = (timed_1 - timed_0 - start_s * kv) / step_s
    return (slot_1 - slot_0) + prompt_tokens * kv + growth


@part
def cost_from_now(
    table: np.ndarray,
    bucket_s: float,
    prompt_tokens: float,
    life_s: float,
    output_tokens: float,
    prefill_price: float,
) -> float:
    """Price of a life on a device that starts now, where every integral is 0, and of its prefill.

    prompt_tokens are those to be prefilled.
    """
    slot, kv, timed = integrals(table, bucket_s, life_s)
    growth = timed / (life_s / output_tokens)
    return slot + prompt_tokens * kv + growth + prefill_price * prompt_tokens


@kernel
def costs_from_now(
    tables: np.ndarray,
    bucket_s: float,
    prompt_tokens: np.ndarray,
    life_s: np.ndarray,
    output_tokens: np.ndarray,
    prefill_price: float,
) -> np.ndarray:
    """`cost_from_now` of lives on each device, (G, J).

    tables is (G, 5, N + 1), prompt_tokens (1 or G, J), life_s (G, J), output_tokens (J,).
    """
    found = np.empty((len(tables), len(output_tokens)))
    for g in range(len(tables)):
        prompts = prompt_tokens[g if len(prompt_tokens) > 1 else 0]
        for j in range(found.shape[1]):
            found[g, j] = cost_from_now(tables[g], bucket_s, prompts[j], life_s[g, j], output_tokens[j], prefill_price)
    return found


@kernel
def best_bids(
    tables: np.ndarray,
    bucket_s: float,
    step_s: np.ndarray,
    order: np.ndarray,
    start_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    value: np.ndarray,
    grain: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest margin of each sample, its delay index and place in `order`, (S,) each; ties: the earlier in both.

    order lists device indices, value is (S, 4, 1 or G). Margins are whole grains of reward: at level prices a life
    costs the same whenever it starts, and what rounding left must not choose.
    """
    margin, delay = np.full(len(start_s), -math.inf), np.zeros(len(start_s), dtype=np.int64)
    place = np.zeros(len(start_s), dtype=np.int64)
    for i in range(len(start_s)):
        for d in range(len(DELAY_BUCKETS)):
            at_s = start_s[i] + DELAY_BUCKETS[d] * bucket_s
            for k in range(len(order)):
                g = order[k]
                life_s = output_tokens[i] * step_s[g]
                cost = life_cost(tables[g], bucket_s, at_s, prompt_tokens[i], life_s, step_s[g])
                offer = np.rint((value[i, d, g if value.shape[2] > 1 else 0] - cost) / grain) * grain
                if offer > margin[i]:
                    margin[i], delay[i], place[i] = offer, d, k
    return margin, delay, place


@kernel
def _add_ramp(steps: np.ndarray, at: float, level: float, slope: float, weight: float, buckets: int) -> None:
    """Add a slot held from bucket `at` on, and KV tokens that grow from `level`, to the differences of their means."""
    bucket = int(min(at, buckets))
    rest = 1.0 - (at - bucket) if at < buckets else 0.0
    first = level * rest + slope * rest * rest / 2
    second = level + slope * (rest + 0.5)
    steps[0, bucket] += weight * rest
    steps[1, bucket + 1] += weight * (1.0 - rest)
    steps[2, bucket] += weight * first
    steps[3, bucket + 1] += weight * (second - 2 * first)
    steps[4, bucket + 2] += weight * (slope - second + first)


@kernel
def demand(
    devices: int,
    buckets: int,
    bucket_s: float,
    step_s: np.ndarray,
    device: np.ndarray,
    delay: np.ndarray,
    start_s: np.ndarray,
    prompt_tokens: np.ndarray,
    output_tokens: np.ndarray,
    weight: np.ndarray,
) -> np.ndarray:
    """Mean slots and KV tokens (G, 2, N) that samples hold in each bucket of the device (-1: none) that they won.

    A life is a ramp that starts at t0 minus one that starts at t1; a ramp's bucket means have a constant second
    difference after its second bucket, so a few entries and two running sums give all buckets.
    """
    found = np.zeros((devices, 2, buckets))
    for ends in (False, True):
        steps = np.zeros((devices, 5, buckets + 3))
        for i in range(len(device)):
            g = device[i]
            if g < 0:
                continue
            step = step_s[g] / bucket_s
            life = output_tokens[i] * step
            at, level = start_s[i] / bucket_s + DELAY_BUCKETS[delay[i]], prompt_tokens[i]
            if ends:
                _add_ramp(steps[g], at + life, level + life / step, 1.0 / step, -weight[i], buckets)
            else:
                _add_ramp(steps[g], at, level, 1.0 / step, weight[i], buckets)
        for g in range(devices):
            slots, growth, kv = 0.0, 0.0, 0.0
            for h in range(buckets):
                slots += steps[g, 0, h] + steps[g, 1, h]
                growth += steps[g, 2, h] + steps[g, 3, h] + steps[g, 4, h]
                kv += growth
                found[g, 0, h] += slots
                found[g, 1, h] += kv
    return found


@kernel
def gradient_step(
    prices: np.ndarray,
    wanted: np.ndarray,
    occupied: np.ndarray,
    capacity: np.ndarray,
    learning_rate: float,
    base_price: float,
    anchor_pull: float,
    anchor: np.ndarray,
) -> np.ndarray:
    """Prices (G, 2, N) after one projected step along the excess demand and towards anchor (2,); the other arrays have
    that shape."""
    found = np.empty(prices.shape)
    for g, r, h in np.ndindex(prices.shape):
        free = max(1.0 - occupied[g, r, h] / capacity[g, r, h], 0.0)
        excess = wanted[g, r, h] / capacity[g, r, h] - free
        moved = prices[g, r, h] + learning_rate * (base_price / capacity[g, r, h]) * excess
        moved += anchor_pull * (anchor[r] - moved)
        found[g, r, h] = min(max(moved, 0.0), PRICE_CAP * base_price / capacity[g, r, h])
    return found
