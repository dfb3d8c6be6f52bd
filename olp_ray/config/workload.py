"""How generated requests arrive, and how they hang together as sessions. The notations of both are read here.

Which lengths they have is named in the scenario and drawn in `olp_ray.workload`, where predictors of them live too.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from olp_ray.config.base import Model, NotNegative, Positive
from olp_ray.errors import ConfigError

ARRIVALS_NOTATION = "poisson, gamma:CV, or rates:R@T,R@T,... (R requests/s from T seconds on; the first T is 0)"
SESSIONS_NOTATION = "TURNS:THINK_S like 3.5:20"
PREDICTOR_NAMES = ("perfect", "uniform", "lognormal", "mean", "class_mean", "cap", "online")
PREDICTOR_NOTATION = "a name, some with a number, like uniform:0.2 or online:256"


class RateFrom(Model):
    """From from_s on, `rate` requests per second."""

    from_s: NotNegative
    rate: NotNegative


class ArrivalsConfig(Model):
    """An arrival process.

    poisson has exponential gaps, gamma Gamma gaps with `variation` as coefficient of variation (1 is Poisson, above it
    bursts); both take the scenario's rate. rates is a Poisson process with stated rates from stated times on; the last
    one lasts as long as there are requests.
    """

    process: Literal["poisson", "gamma", "rates"] = "poisson"
    variation: Positive = 1.0
    rates: tuple[RateFrom, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `poisson`, `gamma:3` or `rates:0.4@0,0.6@1500`. Raises `ConfigError` naming what is expected."""
        name, _, argument = text.partition(":")
        try:
            if name == "gamma":
                return cls(process="gamma", variation=float(argument))
            if name == "rates":
                pairs = [part.split("@") for part in argument.split(",")]
                return cls(process="rates", rates=tuple(RateFrom(from_s=float(t), rate=float(r)) for r, t in pairs))
            if text != "poisson":
                raise ConfigError(f"arrivals {text!r}: expected {ARRIVALS_NOTATION}")
            return cls()
        except ValidationError as error:
            reason = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise ConfigError(f"arrivals {text!r}: {reason}; expected {ARRIVALS_NOTATION}") from error
        except ValueError as error:
            raise ConfigError(f"arrivals {text!r}: expected {ARRIVALS_NOTATION}") from error

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.process != "gamma" and self.variation != 1.0:
            raise ValueError(f"variation is of process gamma, not of {self.process}")
        if (self.process == "rates") != bool(self.rates):
            raise ValueError("process rates needs a list of rates, and no other process has one")
        if self.rates:
            times = [piece.from_s for piece in self.rates]
            if times[0] != 0 or times != sorted(set(times)):
                raise ValueError(
                    f"the times of rates must start at 0 and rise, got {', '.join(f'{t:g}' for t in times)}"
                )
            if self.rates[-1].rate == 0:
                raise ValueError("the last rate must be above 0: it lasts until all requests have come")
        return self


class SessionsConfig(Model):
    """Multi-turn conversations: each turn's prompt is all that was said before it and the new text.

    turns is the mean number of turns (geometric), think_s the mean time from the end of an answer to the next turn
    (exponential). shared_tokens is the length of a system prompt that starts every session's prompts.
    """

    turns: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.5
    think_s: Positive = 20.0
    shared_tokens: Annotated[int, Field(ge=0)] = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `3.5:20`, mean turns and mean think time in seconds. Raises `ConfigError` naming what is expected."""
        turns, _, think_s = text.partition(":")
        try:
            return cls(turns=float(turns), think_s=float(think_s))
        except ValueError as error:
            reason = f"{error.errors()[0]['msg']}; " if isinstance(error, ValidationError) else ""
            raise ConfigError(f"sessions {text!r}: {reason}expected {SESSIONS_NOTATION}") from error
