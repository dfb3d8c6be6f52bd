"""What is simulated beyond fleet and requests: stages, memory rules, what goes wrong and when."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from olp_ray.config.base import Count, Mode, Model, NotNegative, Positive
from olp_ray.config.fleet import DeviceConfig
from olp_ray.errors import ConfigError

Share = Annotated[float, Field(ge=0, lt=1)]


class PrefillPoolConfig(Model):
    """`count` prefill devices of the kind of the fleet's first device, unless `kind` names another. They serve one
    queue, first come first served, one prompt at a time each."""

    count: Count
    kind: str | None = None


class FailureConfig(Model):
    """A device dies at at_s with everything on it; with back_after_s, a new process takes its place so much later."""

    device: str
    at_s: NotNegative
    back_after_s: Positive | None = None


class JoinConfig(Model):
    """A new device is asked for at at_s and takes requests startup_s later."""

    device: DeviceConfig
    at_s: NotNegative
    startup_s: NotNegative = 30.0


class SimConfig(Model):
    """The simulator's settings; all but horizon_s and missed_updates need timed mode.

    disaggregated has the fleet decode only; prompts are computed in prefill_pool, or at no cost and time without one.
    watermark is the share of KV blocks that admission leaves free. prefix_caching keeps computed prompts in free KV
    memory, by the trace's block hashes of prefix_block_tokens tokens. eviction says what happens to the KV cache of an
    evicted sequence: computed again, or moved to host memory and back at swap_tokens_per_s. failure_every_s draws
    failures of every device by the seed, with that mean time between them and restart_s until the device is back.
    speed_jitter is the sigma of the log of a device's speed, drawn anew every jitter_every_s. missed_updates lists
    (price update, device ids) whose prices come too late.
    """

    stage: Literal["mixed", "disaggregated"] = "mixed"
    prefill_pool: PrefillPoolConfig | None = None
    horizon_s: Positive | None = None
    watermark: Share = 0.0
    prefix_caching: bool = False
    prefix_block_tokens: Count = 512
    eviction: Literal["recompute", "swap"] = "recompute"
    swap_tokens_per_s: Positive = 50_000.0
    failures: tuple[FailureConfig, ...] = ()
    failure_every_s: Positive | None = None
    restart_s: Positive = 60.0
    joins: tuple[JoinConfig, ...] = ()
    speed_jitter: NotNegative = 0.0
    jitter_every_s: Positive = 10.0
    missed_updates: tuple[tuple[int, tuple[str, ...]], ...] = ()

    @model_validator(mode="after")
    def _pool_has_a_stage(self) -> Self:
        if self.prefill_pool is not None and self.stage == "mixed":
            raise ValueError("prefill_pool is only used by stage 'disaggregated'")
        return self

    def check_mode(self, mode: Mode) -> None:
        """Raise `ConfigError` when a setting of timed mode is set in period mode."""
        if mode == "timed":
            return
        both = {"horizon_s", "missed_updates", "failures"}
        wrong = [name for name in type(self).model_fields if name not in both and self._differs(name)]
        if wrong:
            raise ConfigError(f"sim {', '.join(wrong)}: only timed mode has this; period mode decodes only")

    def undisturbed(self) -> Self:
        """The same stage and memory rules, to the end, with nothing that goes wrong or changes on the way."""
        lasting = {"stage", "prefill_pool", "watermark", "prefix_caching", "prefix_block_tokens", "eviction"}
        return type(self)(**{name: getattr(self, name) for name in (*sorted(lasting), "swap_tokens_per_s")})

    def _differs(self, name: str) -> bool:
        return bool(getattr(self, name) != type(self).model_fields[name].default)
