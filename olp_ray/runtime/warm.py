"""Loading compiled kernels before the first request needs them: from disk .7 s, compiled anew 20 s.

Whatever serves calls this while it starts, on throwaway objects; nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from olp_ray.config import RouterConfig
from olp_ray.core.calibration import MIN_SAMPLES
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer, PerDevice, PriceBlock, PriceScalars, pick_winners
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Assign, Device, Finished, Request


def warm_block() -> None:
    """Carry out one update of a price block of one device and two buckets."""
    scalars = np.array(PriceScalars(1.0, 0.1, 1.0, 0.1, 0.1, 0.1, 0.0, 1.0, 2.0, 0.0, 0.0))
    block = PriceBlock([0], np.zeros((1, 2, 2)), 0)
    per_device = PerDevice(np.zeros((1, 2, 2)), np.ones((1, 2, 2)), np.ones(1), np.array([-1]))
    block.begin(0, scalars, per_device, np.array([[0.0, 1.0, 1.0, 1.0, 0.0]]), np.ones((1, 4, 1)))
    block.accept(pick_winners([block.best(0)], scalars))
    block.finish()


def warm_router(devices: Sequence[Device], config: RouterConfig) -> None:
    """Serve a few requests on copies of the devices, until prices have moved and lengths have been learned."""
    settings = config.settings("timed")
    router = PricedRouter(Router(devices, config.policy, settings, config.limits(), seed=0), InlinePricer())
    ended: list[Finished] = []
    for i in range(max(settings.online_lp.min_arrivals, MIN_SAMPLES) + 2):
        now_s = i * settings.online_lp.update_s
        step = router.handle(now_s, [*ended, Arrived(Request(f"{i}", now_s, 8, 8.0))])
        ended = [Finished(decision.key, 8) for decision in step.decisions if isinstance(decision, Assign)]
