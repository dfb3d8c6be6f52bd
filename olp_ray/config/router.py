"""The policy, its objective and its constants; where presets and defaults of the router live."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from olp_ray.config.base import Count, Mode, Model, NotNegative, Positive, nearest
from olp_ray.core.policies import POLICIES
from olp_ray.core.policies.settings import OnlineLPSettings, PaperLPSettings, PolicySettings, Rejects, RouterLimits
from olp_ray.core.types import Objective
from olp_ray.core.types.objective import MOST_CLASS_WEIGHT, MOST_PRIORITY_FACTOR
from olp_ray.errors import ConfigError, PolicyError, RequestError


class ObjectiveConfig(Model):
    """Six weights and two thresholds (seconds; periods in period mode). None takes the preset's value."""

    throughput: NotNegative | None = None
    e2e: NotNegative | None = None
    ttft: NotNegative | None = None
    qps: NotNegative | None = None
    tail_e2e: NotNegative | None = None
    tail_ttft: NotNegative | None = None
    e2e_threshold_s: Positive | None = None
    ttft_threshold_s: Positive | None = None
    class_weights: dict[str, Annotated[float, Field(ge=1 / MOST_CLASS_WEIGHT, le=MOST_CLASS_WEIGHT)]] = Field(
        default_factory=dict
    )
    priority_factor: Annotated[float, Field(ge=1 / MOST_PRIORITY_FACTOR, le=MOST_PRIORITY_FACTOR)] = 2.0
    tenant_fairness: NotNegative = 0.0
    joint_deadlines: bool | None = None


class OnlineLPConfig(Model):
    """Overrides of the online LP's constants; what is None follows from the thresholds (see `online_lp_settings`)."""

    bucket_s: Positive | None = None
    horizon_s: Positive | None = None
    lookahead_s: Positive | None = None
    update_s: Positive | None = None
    reward_window_s: Positive | None = None
    urgency_s: Positive | None = None
    calm_urgency_s: Positive | None = None
    calm_late_requests: NotNegative | None = None
    gate_horizon_s: Positive | None = None
    end_s: Positive | None = None
    max_wait_s: Positive | None = None
    rounds: Count = 2
    batch: Count = 64
    learning_rate: Positive = 0.1
    anchor_pull: Annotated[float, Field(ge=0, le=1)] = 0.1
    regular_price: Annotated[float, Field(ge=1e-6, allow_inf_nan=False)] = (
        0.02  # keys stay finite where nothing has a price
    )
    level_ratio: Annotated[float, Field(gt=1)] = 1.1
    guard: Annotated[float, Field(ge=0, le=1)] = 0.7
    gate_scale: NotNegative = 1.0
    gate_off: NotNegative = 0.02
    history: Count = 512
    rate_window: Count = 200
    min_arrivals: Count = 8
    max_wait_length_factor: NotNegative = 0.0
    max_wait_exempt_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    remaining_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.7
    prefill_ahead_s: Positive = 0.1
    load_weight: NotNegative = 1e-3
    reservation: bool = True


class PaperLPConfig(Model):
    """Constants and switches of `online_lp_paper`; what is None follows from the mode and the thresholds.

    horizon_s is the paper's T: set it to the length of the run.
    """

    horizon_s: Positive | None = None
    slot_s: Positive | None = None
    rounds: Count = 5
    batch: Count = 64
    history: Count = 1000
    rate_window: Count = 200
    learning_rate: Positive = 1e-4
    learning_rate_decay: Literal["constant", "sqrt"] = "constant"
    reward_normaliser: Literal["largest", "one", "none"] = "largest"
    remaining: Literal["arrivals", "slots"] = "arrivals"
    recording: Literal["best", "best_positive", "admitted"] = "best"
    mixed: bool = False
    count_prompt_tokens: bool = False
    exact: bool = False


class Preset(Model):
    """A named objective: weights as ratios, what it rejects, and how its starvation bound is set."""

    weights: tuple[NotNegative, NotNegative, NotNegative, NotNegative, NotNegative, NotNegative]
    doc: str
    rejects: Rejects = "max_wait"
    joint_deadlines: bool = False
    max_wait_ttfts: Positive | None = None  # X as a multiple of the TTFT threshold, in place of E2E thresholds
    urgency_ttfts: Positive = 0.2  # tau in seconds likewise
    calm_urgency_ttfts: Positive | None = None  # tau likewise, in both modes, while few are late; None: the same
    calm_late_share: NotNegative = 0.0  # few: this share of the arrivals remembered
    exempt_share: float = 0.01


PRESETS: dict[str, Preset] = {
    "balanced": Preset(weights=(0, 1, 1, 0.1, 1, 1), doc="a bit of everything; the default"),
    "e2e": Preset(weights=(0, 1, 1, 0, 0, 0), doc="lowest mean end-to-end latency"),
    "ttft": Preset(weights=(0, 0, 1, 0, 0, 0), doc="lowest mean time to first token"),
    "throughput": Preset(weights=(1, 0, 0, 0.1, 0, 0), doc="most output tokens"),
    "attainment": Preset(
        weights=(0, 0, 0, 0.01, 1, 1),
        doc="most requests inside both thresholds (goodput)",
        rejects="deadline",
        joint_deadlines=True,
        urgency_ttfts=0.5,
    ),
    "p95_ttft": Preset(
        weights=(0, 0, 0, 0.01, 0, 1),
        doc="95 of 100 first tokens inside the TTFT threshold, and soon",
        rejects="deadline",
        urgency_ttfts=0.5,
        calm_urgency_ttfts=4,
        calm_late_share=0.05,
    ),
    "p99_ttft": Preset(
        weights=(0, 0, 0, 0.01, 0, 1),
        doc="99 of 100 first tokens inside twice the TTFT threshold",
        rejects="deadline",
        max_wait_ttfts=2,
        urgency_ttfts=0.5,
        exempt_share=0.008,
    ),
    **{
        f"paper_{name}": Preset(weights=weights, rejects="never", doc=f"weights of the paper's {figure}")
        for name, figure, weights in (
            ("latency_mixed", "Figure 14a", (1 / 135, 1, 1, 1, 1 / 400, 1 / 400)),
            ("latency", "Figure 3a", (0, 1, 1, 0, 0, 0)),
            ("tail_mixed", "Figure 2a", (1 / 135, 1 / 400, 1 / 400, 1, 1, 1)),
            ("balanced", "Figure 2b", (1 / 27, 1 / 2048, 1 / 2048, 5, 1, 1)),
            ("tail", "Figure 3b", (0, 0, 0, 0, 1, 1)),
            ("throughput_mixed", "Figure 16a", (1, 1 / 400, 1 / 400, 1, 1 / 400, 1 / 400)),
            ("throughput", "Figure 16b", (1, 0, 0, 1, 0, 0)),
        )
    },
}

DEFAULT_THRESHOLDS: dict[Mode, tuple[float, float]] = {"timed": (15.0, 2.0), "period": (500.0, 49.0)}


class RouterConfig(Model):
    """The policy and its objective.

    rejects says when a waiting request is turned away, for every policy with a central queue: "never"; at the
    starvation bound X where its price says that capacity can not hold it ("max_wait"); or also once it can not meet
    its deadlines any more ("deadline"). None takes the preset's.
    """

    policy: str = "online_lp"
    preset: str = "balanced"
    rejects: Rejects | None = None
    objective: ObjectiveConfig = ObjectiveConfig()
    online_lp: OnlineLPConfig = OnlineLPConfig()
    paper_lp: PaperLPConfig = PaperLPConfig()
    aged_length_weight: NotNegative = 1.0
    queue_size: Count | None = None
    retry_after_s: Positive = 1.0
    prefix_block_tokens: Count = 512

    @field_validator("policy")
    @classmethod
    def _known_policy(cls, value: str) -> str:
        name, colon, preset = value.partition(":")
        if name not in POLICIES:
            raise ValueError(f"policy {value!r} is unknown{nearest(name, POLICIES)}")
        if colon:
            raise ValueError(
                f"expected a policy alone; the preset has a key of its own: policy: {name}, preset: {preset}"
            )
        return value

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.preset not in PRESETS:
            raise ValueError(f"preset {self.preset!r} is unknown{nearest(self.preset, PRESETS)}")
        self.core_objective("timed")
        return self

    def with_policy(self, text: str) -> Self:
        """This config with `NAME` or `NAME:preset` as the policy. Raises `ConfigError` for an unknown name."""
        name, _, preset = text.partition(":")
        if name not in POLICIES:
            raise ConfigError(f"policy {name!r} is unknown{nearest(name, POLICIES)}")
        if preset and preset not in PRESETS:
            raise ConfigError(f"policy {text!r}: preset {preset!r} is unknown{nearest(preset, PRESETS)}")
        return self.model_copy(update={"policy": name, "preset": preset or self.preset})

    def limits(self) -> RouterLimits:
        return RouterLimits(self.queue_size, self.retry_after_s, self.prefix_block_tokens)

    def core_objective(self, mode: Mode) -> Objective:
        """The preset's weights with the overrides of `objective`. Raises `ConfigError` where all are zero."""
        names = ("throughput", "e2e", "ttft", "qps", "tail_e2e", "tail_ttft")
        weights = dict(zip(names, PRESETS[self.preset].weights, strict=True))
        thresholds = dict(zip(("e2e_threshold_s", "ttft_threshold_s"), DEFAULT_THRESHOLDS[mode], strict=True))
        given = {k: v for k, v in self.objective.model_dump().items() if v is not None}
        given["joint_deadlines"] = given.get("joint_deadlines", PRESETS[self.preset].joint_deadlines)
        given["class_weights"] = tuple(sorted(self.objective.class_weights.items()))
        try:
            return Objective(**{**weights, **thresholds, **given})
        except RequestError as error:
            raise ConfigError(f"`objective` over preset {self.preset!r}: {error}") from error

    def settings(self, mode: Mode) -> PolicySettings:
        objective = self.core_objective(mode)
        preset = PRESETS[self.preset]
        rejects = self.rejects or preset.rejects
        online_lp = online_lp_settings(self.online_lp, objective, mode, preset, rejects)
        paper_lp = paper_lp_settings(self.paper_lp, objective, mode)
        if self.policy == "online_lp":
            _check_parts("router.online_lp", online_lp)
        if self.policy == "online_lp_paper":
            _check_parts("router.paper_lp", paper_lp)
        return PolicySettings(objective, rejects, online_lp, paper_lp, self.aged_length_weight)


def _check_parts(where: str, settings: OnlineLPSettings | PaperLPSettings) -> None:
    try:
        settings.check()
    except PolicyError as error:
        told = "What is not set follows from router.objective's thresholds"
        raise ConfigError(f"{where}: {error}. {told}") from error


def online_lp_settings(
    config: OnlineLPConfig, objective: Objective, mode: Mode, preset: Preset, rejects: Rejects
) -> OnlineLPSettings:
    """Constants for the period model as measured there; in seconds as ratios of the thresholds."""
    e2e_s, ttft_s = objective.e2e_threshold_s, objective.ttft_threshold_s
    if mode == "period":
        derived = {
            "bucket_s": 16.0,
            "horizon_s": 2048.0,
            "lookahead_s": 1024.0,
            "reward_window_s": 2048.0,
            "urgency_s": 10.0,
            "gate_horizon_s": 50.0,
        }
    else:
        derived = {
            "bucket_s": ttft_s / 3,
            "horizon_s": 4 * e2e_s,
            "lookahead_s": 2 * e2e_s,
            "reward_window_s": 4 * e2e_s,
            "urgency_s": ttft_s * preset.urgency_ttfts,
            "gate_horizon_s": ttft_s,
        }
    # where nothing is rejected a safety net: in lasting overload a tight bound is first-come, first-served
    derived["max_wait_s"] = (40 if rejects == "never" else 4) * e2e_s
    if preset.max_wait_ttfts is not None:
        derived["max_wait_s"] = preset.max_wait_ttfts * ttft_s
    derived["max_wait_exempt_share"] = preset.exempt_share
    derived["calm_late_requests"] = preset.calm_late_share * config.history
    if preset.calm_urgency_ttfts is not None:
        derived["calm_urgency_s"] = preset.calm_urgency_ttfts * ttft_s
    given = {k: v for k, v in config.model_dump().items() if v is not None}
    merged: dict[str, Any] = {"end_s": math.inf, **derived, **given}
    merged.setdefault("update_s", merged["bucket_s"] / 2)
    merged.setdefault("calm_urgency_s", merged["urgency_s"])
    return OnlineLPSettings(**merged)


def paper_lp_settings(config: PaperLPConfig, objective: Objective, mode: Mode) -> PaperLPSettings:
    """The period model: slots of one period, T = 3000. In seconds: slots of a third of the TTFT threshold, one hour."""
    derived = {"horizon_s": 3000.0, "slot_s": 1.0}
    if mode == "timed":
        derived = {"horizon_s": 3600.0, "slot_s": objective.ttft_threshold_s / 3}
    given = {k: v for k, v in config.model_dump().items() if v is not None}
    return PaperLPSettings(**{**derived, **given})
