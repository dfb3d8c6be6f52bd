"""A plain twin of `olp_ray.core.prices`: loops over devices, samples and buckets, and no prefix tables."""

import numpy as np

from olp_ray.core.kernels.records import MARGIN_GRAIN, PRICE_CAP
from olp_ray.core.prices import PriceScalars, SampleColumn

DELAYS = (0, 1, 2, 4)


def plain_cost(prices, bucket_s, start_s, prompt, life_s, step_s):
    """Cost of a life on one device; prices is (2, N), and the last price goes on beyond bucket N."""
    end_s, total, h = start_s + life_s, 0.0, 0
    while h * bucket_s < end_s:
        last = h >= prices.shape[1] - 1
        a = max(start_s, h * bucket_s)
        b = end_s if last else min(end_s, (h + 1) * bucket_s)
        if b > a:
            slot, kv = prices[:, min(h, prices.shape[1] - 1)]
            growth = ((b - start_s) ** 2 - (a - start_s) ** 2) / (2 * step_s)
            total += slot * (b - a) + kv * (prompt * (b - a) + growth)
        if last:
            break
        h += 1
    return total


def plain_demand(buckets, bucket_s, start_s, prompt, life_s, step_s):
    """Mean slots and KV tokens (2, N) that a life holds in each bucket."""
    demand = np.zeros((2, buckets))
    for h in range(buckets):
        a, b = max(start_s, h * bucket_s), min(start_s + life_s, (h + 1) * bucket_s)
        if b > a:
            growth = ((b - start_s) ** 2 - (a - start_s) ** 2) / (2 * step_s)
            demand[:, h] = (b - a) / bucket_s, (prompt * (b - a) + growth) / bucket_s
    return demand


def plain_shift(prices, buckets):
    """(G, 2, N) moved by this many buckets, the last one repeated."""
    moved = prices
    for _ in range(buckets):
        moved = np.concatenate([moved[:, :, 1:], moved[:, :, -1:]], axis=2)
    return moved


def plain_step(prices, terms, anchor, occupied, capacity, demand):
    """One projected gradient step on one device and resource; all arrays (N,)."""
    ahead = min(int(terms.lookahead_buckets), len(prices))
    stepped = prices.copy()
    for h in range(ahead):
        free = max(1 - occupied[h] / capacity[h], 0)
        x = demand[h] / capacity[h] - free
        moved = prices[h] + terms.learning_rate * terms.base_price / capacity[h] * x
        moved += terms.anchor_pull * (anchor - moved)
        stepped[h] = min(max(moved, 0), PRICE_CAP * terms.base_price / capacity[h])
    for h in range(ahead, len(prices)):
        stepped[h] = sum(stepped[ahead // 2 : ahead]) / (ahead - ahead // 2)
    return stepped


def plain_update(prices, work, bidding):
    """Prices (G, 2, N) after one whole update of the devices `bidding`."""
    terms = PriceScalars(*work.scalars)
    anchors = terms.slot_anchor, terms.kv_anchor
    devices, _, buckets = prices.shape
    prices = prices.copy()
    for round_index in range(work.rounds):
        demand = np.zeros_like(prices)
        for i in np.flatnonzero(work.samples[:, SampleColumn.ROUND] == round_index):
            start_s, prompt, output, weight, _ = work.samples[i]
            best = None
            for k, delay in enumerate(DELAYS):
                for g in bidding:
                    life_s, at_s = output * work.step_s[g], start_s + delay * terms.bucket_s
                    cost = plain_cost(prices[g], terms.bucket_s, at_s, prompt, life_s, work.step_s[g])
                    value = work.value[i, k, 0 if work.value.shape[2] == 1 else g]
                    rotated = (g - int(terms.rotation)) % devices
                    grain = terms.base_price * terms.bucket_s * MARGIN_GRAIN
                    bid = (np.rint((value - cost) / grain) * grain, -k, -rotated, g, at_s, life_s)
                    best = bid if best is None or bid[:3] > best[:3] else best
            if best is not None and best[0] > 0:
                g, at_s, life_s = best[3:]
                demand[g] += weight * plain_demand(buckets, terms.bucket_s, at_s, prompt, life_s, work.step_s[g])
        for g in bidding:
            for r in range(2):
                prices[g, r] = plain_step(
                    prices[g, r], terms, anchors[r], work.occupied[g, r], work.capacity[g, r], demand[g, r]
                )
    return prices
