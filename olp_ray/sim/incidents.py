"""What happens to devices in a run, as a schedule made before it: failures, returns, joins, changes of speed.

Random ones are drawn here from the seed; carrying them out is the event loop's work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from olp_ray.config import FleetConfig, Mode
from olp_ray.config.sim import SimConfig
from olp_ray.core.types import Device
from olp_ray.errors import ConfigError
from olp_ray.sim.engine import EngineSpec, engine_spec


@dataclass(frozen=True, slots=True)
class Lost:
    """The device's process dies."""

    time_s: float
    device_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A device, or a new process of one, takes requests."""

    time_s: float
    device: Device
    spec: EngineSpec


@dataclass(frozen=True, slots=True)
class SpeedChanged:
    """From the next iteration on, iterations take 1 / speed of their usual time."""

    time_s: float
    device_id: str
    speed: float


Incident = Lost | Joined | SpeedChanged


def schedule(fleet: FleetConfig, mode: Mode, sim: SimConfig, span_s: float, seed: int) -> list[Incident]:
    """All incidents up to span_s in order of time.

    Raises `ConfigError` for a failure of an unknown device.
    """
    devices = {device.id: device for device in fleet.core_devices(mode)}
    specs = {f"d{i}": engine_spec(config, mode, sim) for i, config in enumerate(fleet.expand())}
    failures = [*_listed_failures(sim, devices), *_drawn_failures(sim, devices, span_s, seed)]
    incidents: list[Incident] = list(_lives(failures, devices, specs))
    joined = FleetConfig(devices=fleet.devices + tuple(join.device for join in sim.joins)).core_devices(mode)
    for join, device in zip(sim.joins, joined[len(devices) :], strict=True):
        incidents.append(Joined(join.at_s + join.startup_s, device, engine_spec(join.device, mode, sim)))
    incidents += _speeds(sim, list(devices), span_s, seed)
    return sorted(incidents, key=lambda incident: incident.time_s)


@dataclass(frozen=True, slots=True)
class _Failure:
    device_id: str
    at_s: float
    back_s: float | None


def _listed_failures(sim: SimConfig, devices: dict[str, Device]) -> Iterator[_Failure]:
    for failure in sim.failures:
        if failure.device not in devices:
            raise ConfigError(f"sim.failures: device {failure.device!r} is unknown (valid: {', '.join(devices)})")
        back_s = None if failure.back_after_s is None else failure.at_s + failure.back_after_s
        yield _Failure(failure.device, failure.at_s, back_s)


def _drawn_failures(sim: SimConfig, devices: dict[str, Device], span_s: float, seed: int) -> Iterator[_Failure]:
    if sim.failure_every_s is None:
        return
    rng = np.random.default_rng([seed, 4])
    for device_id in devices:
        at_s = rng.exponential(sim.failure_every_s)
        while at_s < span_s:
            yield _Failure(device_id, float(at_s), float(at_s + sim.restart_s))
            at_s += sim.restart_s + rng.exponential(sim.failure_every_s)


def _lives(
    failures: Sequence[_Failure], devices: dict[str, Device], specs: dict[str, EngineSpec]
) -> Iterator[Lost | Joined]:
    """Failures of a device that is down already are left out."""
    for device_id, device in devices.items():
        incarnation, up_from_s = device.incarnation, 0.0
        for failure in sorted((f for f in failures if f.device_id == device_id), key=lambda f: f.at_s):
            if failure.at_s < up_from_s:
                continue
            yield Lost(failure.at_s, device_id, incarnation)
            if failure.back_s is None:
                break
            incarnation, up_from_s = incarnation + 1, failure.back_s
            yield Joined(failure.back_s, dataclasses.replace(device, incarnation=incarnation), specs[device_id])


def _speeds(sim: SimConfig, device_ids: Sequence[str], span_s: float, seed: int) -> list[SpeedChanged]:
    if sim.speed_jitter == 0:
        return []
    rng = np.random.default_rng([seed, 5])
    sigma = sim.speed_jitter
    times = np.arange(0.0, span_s, sim.jitter_every_s)
    speeds = np.exp(rng.normal(-sigma * sigma / 2, sigma, (len(times), len(device_ids))))
    return [
        SpeedChanged(float(time_s), device_id, float(speed))
        for time_s, row in zip(times, speeds, strict=True)
        for device_id, speed in zip(device_ids, row, strict=True)
    ]
