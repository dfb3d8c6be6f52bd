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
from olp_ray.errors import PriceError


class PricedRouter:
    """`handle` of a router whose price work is done by `pricer`; its steps carry no price work."""

    def __init__(self, router: Router, pricer: Pricer) -> None:
        self.router = router
        self.pricer = pricer
        self._due_s = math.inf

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        """Like `Router.handle`; collects the tables of the last update when they are due.

        Where the pricer fails to take an update, what was decided stands: the error is among the step's faults as a
        `PriceError`, and that update's tables do not come.
        """
        if now_s >= self._due_s:
            events = [*self.pricer.collect(), *events]
            self._due_s = math.inf
        step = self.router.handle(now_s, events)
        if step.price_work is None:
            return step
        self._due_s = step.price_work.due_s
        faults = step.faults
        try:
            self.pricer.submit(step.price_work)
        except Exception as error:  # whatever it is: the router has committed its decisions
            text = f"price update {step.price_work.update_id} failed: {type(error).__name__}: {error}"
            faults = (*faults, PriceError(text))
        return dataclasses.replace(step, price_work=None, faults=faults)
