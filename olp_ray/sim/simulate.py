"""A fleet and requests in, a result out: the functions that commands and sweeps call."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

from olp_ray.config import DeviceConfig, FleetConfig, Mode, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.core.types import Request
from olp_ray.errors import SimulationError
from olp_ray.sim.engine import EngineSpec, engine_spec
from olp_ray.sim.incidents import schedule
from olp_ray.sim.latency import IterationTime
from olp_ray.sim.prefill_pool import FreePrefill, PrefillPool
from olp_ray.sim.result import Result
from olp_ray.sim.run import Lengths, Router, Simulation, TrueRequest


def fleet_engines(fleet: FleetConfig, mode: Mode, sim: SimConfig | None = None) -> dict[str, EngineSpec]:
    """Engines by device id, in the order of `FleetConfig.core_devices`."""
    return {f"d{i}": engine_spec(device, mode, sim) for i, device in enumerate(fleet.expand())}


def simulate(
    requests: Sequence[TrueRequest],
    fleet: FleetConfig,
    mode: Mode,
    router: Router,
    *,
    update_s: float,
    sim: SimConfig | None = None,
    seed: int = 0,
    timeline: bool = False,
    lengths: Lengths | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """Run until every request is finished or rejected, nothing more can happen, or the horizon is reached.

    router is any object with `handle(now_s, events) -> Step` for the devices of `fleet.core_devices(mode)`. update_s is
    how often it is told the progress of running requests (`settings.online_lp.update_s`). seed draws failures and
    speeds. lengths predicts while the run goes on (`Predictor.learner`). Raises `ConfigError` when sim asks for what
    the mode does not have.
    """
    sim = sim or SimConfig()
    sim.check_mode(mode)
    engines = fleet_engines(fleet, mode, sim)
    simulation = Simulation(
        requests,
        engines,
        router,
        period=mode == "period",
        update_s=update_s,
        horizon_s=math.inf if sim.horizon_s is None else sim.horizon_s,
        prefill=_prefill(fleet, sim),
        lengths=lengths,
        incidents=schedule(fleet, mode, sim, _span_s(requests, sim), seed),
        timeline=timeline,
    )
    return simulation.run(progress)


def _prefill(fleet: FleetConfig, sim: SimConfig) -> PrefillPool | FreePrefill | None:
    if sim.stage == "mixed":
        return None
    if sim.prefill_pool is None:
        return FreePrefill()
    kind = DeviceConfig(kind=sim.prefill_pool.kind or fleet.devices[0].kind).hardware()
    assert kind is not None
    return PrefillPool(sim.prefill_pool.count, IterationTime.of_kind(kind), kind.prefill_chunk_tokens)


def _span_s(requests: Sequence[TrueRequest], sim: SimConfig) -> float:
    """For how long incidents are drawn: the horizon, or the arrivals and as long again."""
    if sim.horizon_s is not None:
        return sim.horizon_s
    return 2 * max((r.request.arrival_s for r in requests), default=0.0)


def saturation_rate(
    requests: Sequence[TrueRequest],
    fleet: FleetConfig,
    mode: Mode,
    sim: SimConfig | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """Requests per second that the fleet serves while more of them wait than it can hold.

    All are present at time 0, as often as it takes to fill every slot of the fleet twice, under central FIFO. What was
    served when the last one starts is counted, requests that still run in part, so the drain at the end does not. sim's
    stage and memory rules hold, what goes wrong in it does not happen. Raises `SimulationError` when none of the
    requests can be served.
    """
    times = math.ceil(2 * sum(device.slots for device in fleet.core_devices(mode)) / max(1, len(requests)))
    present = [
        _Present(dataclasses.replace(r.request, id=f"{r.request.id}.{copy}", arrival_s=0.0), r.output_tokens)
        for copy in range(times)
        for r in requests
    ]
    config = RouterConfig(policy="central_fifo")
    router = build_priced_router(config, fleet, mode, seed=0)
    update_s = config.settings(mode).online_lp.update_s
    sim = None if sim is None else sim.undisturbed()
    result = simulate(present, fleet, mode, router, update_s=update_s, sim=sim, progress=progress)
    served = result.requests[result.requests["status"] == "finished"]
    if served.empty:
        raise SimulationError(f"the fleet can serve none of these {len(requests)} requests")
    last_s = served["start_s"].max()
    if last_s == 0.0:  # they never waited: KV memory and slots held all of them at once
        return len(served) / result.end_s
    share = (last_s - served["first_token_s"]) / (served["finish_s"] - served["first_token_s"])
    return float(share.clip(0, 1).where(served["finish_s"] > last_s, 1.0).sum()) / float(last_s)


@dataclasses.dataclass(frozen=True, slots=True)
class _Present:
    request: Request
    output_tokens: int
