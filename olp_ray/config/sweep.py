"""A sweep over router constants: the space, how it is searched, and what is measured against what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from olp_ray.config.base import Count, Model, load_yaml, nearest
from olp_ray.config.router import ObjectiveConfig, OnlineLPConfig
from olp_ray.config.scenario import ScenarioConfig

Number = Annotated[float, Field(allow_inf_nan=False)]
Direction = Literal["min", "max"]


class Axis(Model):
    """One dimension of the space: either a list of values, or a range (log: uniform in the logarithm)."""

    values: tuple[Number, ...] | None = Field(default=None, min_length=1)
    low: Number | None = None
    high: Number | None = None
    log: bool = False

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.values is not None:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("give either values, or low and high (and log)")
            return self
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError("expected values, or low < high")
        if self.log and self.low <= 0:
            raise ValueError(f"a log range must start above 0, low is {self.low:g}")
        return self


class SearchConfig(Model):
    """grid runs every combination of `values`; random and optuna draw `trials` of them by seed."""

    method: Literal["grid", "random", "optuna"] = "grid"
    trials: Count | None = None
    seed: int = 0

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.method == "grid" and self.trials is not None:
            raise ValueError("trials is for random and optuna; a grid runs every combination")
        if self.method != "grid" and self.trials is None:
            raise ValueError(f"trials is needed for {self.method}")
        return self


class SweepConfig(Model):
    """Space keys are dotted keys of the router config, for example objective.ttft or online_lp.guard.

    objectives name metrics and whether each is to be small or large; the front is drawn over them, and optuna
    searches by them. Every trial runs all seeds of the scenario.
    """

    scenario: ScenarioConfig = ScenarioConfig()
    space: dict[str, Axis] = Field(min_length=1)
    search: SearchConfig = SearchConfig()
    objectives: dict[str, Direction] = Field(min_length=1)
    workers: Count | None = None

    @field_validator("space")
    @classmethod
    def _dotted(cls, value: dict[str, Axis]) -> dict[str, Axis]:
        valid = router_keys()
        for key in value:
            if key not in valid:
                raise ValueError(f"{key!r} is no number of the router config{nearest(key, valid)}")
        return value

    @model_validator(mode="after")
    def _grid_has_values(self) -> Self:
        if self.search.method == "grid":
            for key, axis in self.space.items():
                if axis.values is None:
                    raise ValueError(f"space.{key}: a grid needs values, got a range")
        return self


def router_keys() -> list[str]:
    """The keys that a space may name."""
    skipped = {"reservation"}
    return [
        *(f"objective.{name}" for name in ObjectiveConfig.model_fields if name != "joint_deadlines"),
        *(f"online_lp.{name}" for name in OnlineLPConfig.model_fields if name not in skipped),
    ]


def load_sweep(path: str | Path) -> SweepConfig:
    """Read a sweep file; a relative trace in its scenario starts at the file's folder."""
    sweep = load_yaml(path, SweepConfig)
    if sweep.scenario.trace is None:
        return sweep
    trace = str(Path(path).parent / sweep.scenario.trace)
    return sweep.model_copy(update={"scenario": sweep.scenario.model_copy(update={"trace": trace})})
