"""One scenario: which requests meet which fleet under which router. The keys are the long flags of `olp-ray`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from pydantic import field_validator, model_validator

from olp_ray.config.base import Count, Mode, Model, Positive, load_yaml, nearest
from olp_ray.config.fleet import FleetConfig
from olp_ray.config.router import RouterConfig
from olp_ray.config.sim import SimConfig
from olp_ray.config.workload import PREDICTOR_NAMES, PREDICTOR_NOTATION, ArrivalsConfig, SessionsConfig


class ScenarioConfig(Model):
    """Requests (a trace, or a generated workload), fleet, router, seeds.

    trace is a file; without it `workload` names a generator. requests cuts the trace or sets the generator's count.
    arrivals is the process that generated requests arrive by (Poisson if not given); a trace keeps its own times unless
    it is given. sessions makes multi-turn conversations of a generated workload. rate (requests per second) or load
    (times the fleet's saturation throughput) scale the arrivals; with neither, a trace keeps its own rate and a
    generated workload has load 1.25. A seed sets where a trace starts (circularly), the generator's draws and the
    predictor's errors. sim has what only files can say: stages, failures, joins, jitter; saturation is measured with
    its stage and memory rules, without what goes wrong in it.
    """

    trace: str | None = None
    workload: str = "lmsys"
    arrivals: ArrivalsConfig | None = None
    sessions: SessionsConfig | None = None
    requests: Count | None = None
    rate: Positive | None = None
    load: Positive | None = None
    fleet: FleetConfig = FleetConfig.parse("4xa100-8b")
    mode: Mode = "timed"
    predictor: str = "uniform:0.2"
    seeds: tuple[int, ...] = (0, 1, 2)
    router: RouterConfig = RouterConfig()
    sim: SimConfig = SimConfig()

    @field_validator("fleet", mode="before")
    @classmethod
    def _notation(cls, value: Any) -> Any:
        return FleetConfig.parse(value) if isinstance(value, str) else value

    @field_validator("arrivals", mode="before")
    @classmethod
    def _arrivals_notation(cls, value: Any) -> Any:
        return ArrivalsConfig.parse(value) if isinstance(value, str) else value

    @field_validator("sessions", mode="before")
    @classmethod
    def _sessions_notation(cls, value: Any) -> Any:
        return SessionsConfig.parse(value) if isinstance(value, str) else value

    @field_validator("predictor", mode="before")
    @classmethod
    def _known_predictor(cls, value: Any) -> Any:
        if not isinstance(value, str):
            raise ValueError(f"expected {PREDICTOR_NOTATION} (valid: {', '.join(PREDICTOR_NAMES)})")
        name = value.partition(":")[0]
        if name not in PREDICTOR_NAMES:
            raise ValueError(f"predictor {value!r} is unknown{nearest(name, PREDICTOR_NAMES)}")
        return value

    @field_validator("seeds")
    @classmethod
    def _distinct(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("expected at least one seed")
        if min(value) < 0 or len(set(value)) < len(value):
            raise ValueError("seeds must be distinct whole numbers >= 0")
        return value

    @model_validator(mode="after")
    def _one_scale(self) -> Self:
        if self.rate is not None and self.load is not None:
            raise ValueError("rate and load both rescale the arrivals; give one of them")
        if self.states_rates and (self.rate is not None or self.load is not None):
            raise ValueError("arrivals state their own rates; rate and load do not go with them")
        return self

    @model_validator(mode="after")
    def _sessions_fit(self) -> Self:
        if self.sessions is not None and self.trace is not None:
            raise ValueError("sessions are made of generated workloads; a trace has its own")
        if self.sim.prefix_caching and self.sim.prefix_block_tokens != self.router.prefix_block_tokens:
            raise ValueError(
                f"sim.prefix_block_tokens is {self.sim.prefix_block_tokens} and router.prefix_block_tokens "
                f"{self.router.prefix_block_tokens}; a block hash stands for as many tokens in both"
            )
        return self

    @property
    def states_rates(self) -> bool:
        """Whether the arrival process has rates and times of its own."""
        return self.arrivals is not None and self.arrivals.process == "rates"


def load_scenario(path: str | Path) -> ScenarioConfig:
    """Read a scenario file; a relative `trace` in it starts at the file's folder."""
    scenario = load_yaml(path, ScenarioConfig)
    if scenario.trace is None:
        return scenario
    return scenario.model_copy(update={"trace": str(Path(path).parent / scenario.trace)})
