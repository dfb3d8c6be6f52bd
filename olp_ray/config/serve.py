"""The serving endpoint: its fleet of emulated engines, its router, and where it listens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from olp_ray.config.base import Count, Model, Positive
from olp_ray.config.fleet import FleetConfig
from olp_ray.config.router import RouterConfig
from olp_ray.config.runtime import RuntimeConfig

LengthPredictor = Literal["online", "mean", "cap"]


class ServeConfig(Model):
    """What `olp-ray serve` starts.

    output_lengths names the generated workload whose output lengths the emulated engines draw from. predictor is what
    the router is told of them beforehand: learned online from completions, their mean, or the request's limit (cap).
    chunk_interval_s is how often an engine passes on the tokens that it has produced.
    """

    fleet: FleetConfig = FleetConfig.parse("4xa100-8b")
    router: RouterConfig = RouterConfig(queue_size=10_000)
    runtime: RuntimeConfig = RuntimeConfig()
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8000
    output_lengths: str = "lmsys"
    predictor: LengthPredictor = "online"
    chunk_interval_s: Positive = 0.04
    most_output_tokens: Count = 4096
    seed: Annotated[int, Field(ge=0)] = 0

    @field_validator("fleet", mode="before")
    @classmethod
    def _notation(cls, value: Any) -> Any:
        return FleetConfig.parse(value) if isinstance(value, str) else value
