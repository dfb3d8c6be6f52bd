"""What runs have to compile first, and which of them wait, so that no two processes compile the same.

How kernels are compiled and kept is `core.kernels.compiler`'s; here no run is started.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from olp_ray.config import Mode, RouterConfig
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.policies import build_policy
from olp_ray.sweep.trial import measures_load


def uncompiled(router: RouterConfig, mode: Mode) -> str | None:
    """The kernel with most to compile in a run of this router; None where nothing is to be compiled."""
    if not build_policy(router.policy, router.settings(mode)).holding:
        return None
    from olp_ray.core import kernels  # numba comes with it
    from olp_ray.core.kernels.compiler import will_be_compiled

    found: dict[str, Callable[..., object]] = {
        "fill": kernels.admission.fill,
        "decide": kernels.decision.decide,
        "refuse": kernels.rejection.refuse,
    }
    name = {"online_lp": "decide", "online_lp_paper": "refuse"}.get(router.policy, "fill")
    return name if will_be_compiled(found[name]) else None


def compiles(scenario: ScenarioConfig, routers: Sequence[RouterConfig]) -> bool:
    """Whether runs of the scenario under these routers have to compile first, or measuring a load has to."""
    measuring = [scenario.router.with_policy("central_fifo")] if measures_load(scenario) else []
    return any(uncompiled(router, scenario.mode) for router in (*measuring, *routers))


def waits(routers: Sequence[RouterConfig], mode: Mode) -> dict[int, int]:
    """run -> the run that it waits for, by their places in `routers`: what the disk has not got is compiled once.

    Of all runs that need one kernel the first compiles it. The firsts follow each other, since they share much.
    """
    firsts: dict[str, int] = {}
    found: dict[int, int] = {}
    for index, name in enumerate(uncompiled(router, mode) for router in routers):
        if name in firsts:
            found[index] = firsts[name]
        elif name is not None:
            if firsts:
                found[index] = max(firsts.values())
            firsts[name] = index
    return found
