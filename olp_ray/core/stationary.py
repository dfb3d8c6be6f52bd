"""What a fleet's scarcest resource costs in a steady state: the bid price of the fluid relaxation.

If requests kept coming as they did lately, and each could be served in part, the best use of the fleet would be the
one of a fractional knapsack: those worth most per share of the scarcest resource, until it is used up. What the last
of them is worth per share is that resource's price; others are free. Price updates are drawn towards it, since a few
sampled lives say little of a level (Talluri and van Ryzin 1998, "An Analysis of Bid-Price Controls for Network Revenue
Management": the static bid price of the deterministic LP).

Notation
    symbol   meaning                                                            shape     unit
    n        past arrivals
    V        reward of each, started at once                                    (n,)      reward
    a        what each takes of a mean device: slot seconds per slot, KV-token  (3, n)    s
             seconds per KV token, seconds of iteration time added
    lambda   arrival rate per device                                                      1/s
    nu       price of a second of the whole device                                        reward/s
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from olp_ray.core.kernels.records import Fleet

SLOTS, KV_TOKENS, ITERATION_TIME = range(3)  # rows of a


class StationaryPrices(NamedTuple):
    """The same on every device."""

    slot: float  # reward per slot and second
    kv: float  # reward per KV token and second
    prefill: float  # reward per prompt token that has to be prefilled


def scarcest(value: np.ndarray, shares: np.ndarray, rate_per_device: float) -> tuple[int, float]:
    """The resource that arrivals take most of, and nu, 0 while a device could serve all of them.

    Ties between resources: the first. Between requests worth the same per share: the earlier.
    """
    load = shares * (rate_per_device / max(len(value), 1))
    totals = load.sum(axis=1)
    resource = int(np.argmax(totals))
    if totals[resource] <= 1.0:
        return resource, 0.0
    worth = value / np.maximum(shares[resource], np.finfo(float).tiny)
    order = np.argsort(-worth, kind="stable")
    used = np.cumsum(load[resource][order])
    last = min(int(np.searchsorted(used, 1.0)), len(order) - 1)  # in this order the sum may round to less than 1
    return resource, float(worth[order[last]])


def prices_of(resource: int, price: float, fleet: Fleet) -> StationaryPrices:
    """A device second's price as prices of what requests hold; iteration time is sold by what sequences, KV tokens and
    prompts add to it."""
    if resource == SLOTS:
        return StationaryPrices(price / max(float(fleet.slots.mean()), 1.0), 0.0, 0.0)
    if resource == KV_TOKENS:
        return StationaryPrices(0.0, price / max(float(fleet.kv_tokens.mean()), 1.0), 0.0)
    per_sequence_s, per_kv_token_s, per_prompt_token_s = fleet.mean_added_s.tolist()
    per_step = price / float(fleet.step_s.mean())
    return StationaryPrices(per_step * per_sequence_s, per_step * per_kv_token_s, price * per_prompt_token_s)
