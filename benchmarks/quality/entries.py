"""Which policies are compared, and which preset answers for which metric: settled here, before any run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from olp_ray.config import RouterConfig
from olp_ray.config.router import PRESETS
from olp_ray.core.policies import POLICIES
from olp_ray.errors import ConfigError

SHED, SERVE = "shed", "serve"
VARIANTS = (SHED, SERVE)

IMMEDIATE = ("round_robin", "random", "least_outstanding", "power_of_two", "least_kv")
CENTRAL = (
    "central_fifo", "central_fifo_skip", "central_sjf", "smallest_volume", "edf", "on_time_sjf", "on_time_fifo",
    "hrrn", "aged_sjf", "sjf_reservation",
)  # fmt: skip
BASELINES = (*IMMEDIATE, *CENTRAL)


class Claim(NamedTuple):
    """The preset that is answerable for a metric in a variant."""

    metric: str
    variant: str
    preset: str


CLAIMS = (
    Claim("attainment", SHED, "attainment"),
    Claim("attainment", SERVE, "attainment"),
    Claim("e2e_mean_s", SERVE, "e2e"),
    Claim("ttft_mean_s", SERVE, "ttft"),
    Claim("ttft_p95_s", SERVE, "p95_ttft"),
    Claim("ttft_p99_s", SERVE, "p99_ttft"),
    Claim("tokens_in_time_per_s", SERVE, "throughput"),
)
ALWAYS = "balanced"

# what is switched off in an ablation; a learning rate of nothing leaves prices at zero
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "no_prices": {"learning_rate": 1e-12, "anchor_pull": 0.0},
    "no_anchor": {"anchor_pull": 0.0},
    "no_gate": {"gate_scale": 0.0},
    "no_reservation": {"reservation": False},
}


def ours(variant: str) -> list[str]:
    """Entries of `online_lp` that a variant needs."""
    presets = [ALWAYS, *(claim.preset for claim in CLAIMS if claim.variant == variant and claim.preset in PRESETS)]
    return [f"online_lp:{preset}" for preset in dict.fromkeys(presets)]


def ablations(variant: str) -> list[str]:
    preset = "attainment" if variant == SHED else "e2e"
    return [f"online_lp:{preset}+{name}" for name in ABLATIONS]


def effective_variant(entry: str, variant: str) -> str:
    """Immediate dispatch has no queue to shed from, so both variants are one run."""
    return SERVE if entry in IMMEDIATE else variant


def router_config(entry: str, variant: str) -> RouterConfig:
    """The router of an entry `POLICY`, `POLICY:preset` or `POLICY:preset+ablation`. Raises `ConfigError`.

    Baselines that look at deadlines get the attainment preset's.
    """
    name, _, ablation = entry.partition("+")
    if ablation and ablation not in ABLATIONS:
        raise ConfigError(f"entry {entry!r}: ablation {ablation!r} is unknown (valid: {', '.join(ABLATIONS)})")
    config = RouterConfig(preset="attainment").with_policy(name)
    changes = {
        "rejects": "deadline" if variant == SHED else "never",
        "online_lp": config.online_lp.model_copy(update=ABLATIONS.get(ablation, {})),
    }
    return config.model_copy(update=changes)


def check_entry(entry: str) -> None:
    """Raise `ConfigError` unless the entry names a policy, a preset and an ablation that exist."""
    router_config(entry, SERVE)
    assert entry.partition(":")[0].partition("+")[0] in POLICIES
