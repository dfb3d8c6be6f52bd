"""A fleet and requests in, a result out: the functions that commands and sweeps call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from olp_ray.config import FleetConfig, Mode, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.types import Request
from olp_ray.errors import SimulationError
from olp_ray.sim.engine import EngineSpec, engine_spec
from olp_ray.sim.result import Result
from olp_ray.sim.run import Router, Simulation, TrueRequest


def fleet_engines(fleet: FleetConfig, mode: Mode) -> dict[str, EngineSpec]:
    """Engines by device id, in the order of `FleetConfig.core_devices`."""
    return {f"d{i}": engine_spec(device, mode) for i, device in enumerate(fleet.expand())}


def simulate(
    requests: Sequence[TrueRequest],
    fleet: FleetConfig,
    mode: Mode,
    router: Router,
    *,
    update_s: float,
    horizon_s: float = math.inf,
    timeline: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run until every request is finished or rejected, nothing more can happen, or horizon_s is reached.

    router is any object with `handle(now_s, events) -> Step` for the devices of `fleet.core_devices(mode)`. update_s is
    how often it is told the progress of running requests (`settings.online_lp.update_s`).
    """
    simulation = Simulation(
        requests,
        fleet_engines(fleet, mode),
        router,
        period=mode == "period",
        update_s=update_s,
        horizon_s=horizon_s,
        timeline=timeline,
    )
    return simulation.run(progress)


def saturation_rate(requests: Sequence[TrueRequest], fleet: FleetConfig, mode: Mode) -> float:
    """Requests per second that the fleet serves with all of them present at time 0 under central FIFO: n / makespan.

    Raises `SimulationError` when none of them can be served.
    """
    present = [_Present(dataclasses.replace(r.request, arrival_s=0.0), r.output_tokens) for r in requests]
    config = RouterConfig(policy="central_fifo")
    router = build_priced_router(config, fleet, mode, seed=0)
    update_s = config.settings(mode).online_lp.update_s
    result = simulate(present, fleet, mode, router, update_s=update_s)
    served = int((result.requests["status"] == "finished").sum())
    if served == 0:
        raise SimulationError(f"the fleet can serve none of these {len(requests)} requests")
    return served / result.end_s


@dataclasses.dataclass(frozen=True, slots=True)
class _Present:
    request: Request
    output_tokens: int
