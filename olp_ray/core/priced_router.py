"""A router with its prices: carries price work to a pricer and brings the tables back, one update later.

This is the whole driver of contract rule 3 (lag one): the work of update u goes out with the decisions of u, and its
tables come in with the first call at or after u + 1, whoever computed them and however fast. No decision is made here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from olp_ray.core.prices import Pricer
from olp_ray.core.router import Router
from olp_ray.core.types import Event, Step


class PricedRouter:
    """`handle` of a router whose price work is done by `pricer`; its steps carry no price work."""

    def __init__(self, router: Router, pricer: Pricer) -> None:
        self.router = router
        self.pricer = pricer
        self._due_s = math.inf

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        """Like `Router.handle`; collects the tables of the last update when they are due."""
        if now_s >= self._due_s:
            events = [*self.pricer.collect(), *events]
            self._due_s = math.inf
        step = self.router.handle(now_s, events)
        if step.price_work is None:
            return step
        self._due_s = step.price_work.due_s
        self.pricer.submit(step.price_work)
        return dataclasses.replace(step, price_work=None)
