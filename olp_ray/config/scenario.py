"""One scenario: which requests meet which fleet under which router. The keys are the long flags of `olp-ray`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from olp_ray.config.base import Count, Mode, Model, Positive, load_yaml
from olp_ray.config.fleet import FleetConfig
from olp_ray.config.router import RouterConfig
from olp_ray.config.sim import SimConfig


class ScenarioConfig(Model):
    """Requests (a trace, or a generated workload), fleet, router, seeds.

    trace is a file; without it `workload` names a generator. requests cuts the trace or sets the generator's count.
    rate (requests per second) or load (times the fleet's saturation throughput) rescale the arrivals; with neither, a
    trace keeps its own times and a generated workload has load 1.8. A seed sets where a trace starts (circularly), the
    generator's draws and the predictor's errors. sim has what only files can say: stages, failures, joins, jitter;
    saturation is measured without them.
    """

    trace: str | None = None
    workload: str = "lmsys"
    requests: Count | None = None
    rate: Positive | None = None
    load: Positive | None = None
    fleet: FleetConfig = FleetConfig.parse("4xa100-8b")
    mode: Mode = "timed"
    predictor: str = "uniform:0.2"
    seeds: tuple[int, ...] = Field(default=(0, 1, 2), min_length=1)
    router: RouterConfig = RouterConfig()
    sim: SimConfig = SimConfig()

    @field_validator("fleet", mode="before")
    @classmethod
    def _notation(cls, value: Any) -> Any:
        return FleetConfig.parse(value) if isinstance(value, str) else value

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if min(value) < 0 or len(set(value)) < len(value):
            raise ValueError("seeds must be distinct whole numbers >= 0")
        return value

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.rate is not None and self.load is not None:
            raise ValueError("rate and load both rescale the arrivals; give one of them")
        return self


def load_scenario(path: str | Path) -> ScenarioConfig:
    """Read a scenario file; a relative `trace` in it starts at the file's folder."""
    scenario = load_yaml(path, ScenarioConfig)
    if scenario.trace is None:
        return scenario
    return scenario.model_copy(update={"trace": str(Path(path).parent / scenario.trace)})
