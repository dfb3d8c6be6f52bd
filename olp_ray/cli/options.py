"""Flags that several commands share, and how they become a `ScenarioConfig`. Nothing is run here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args

import click

from olp_ray.config.base import validate
from olp_ray.config.scenario import ScenarioConfig, load_scenario
from olp_ray.core.policies.settings import Rejects
from olp_ray.errors import ConfigError
from olp_ray.sweep.trial import OpenRouter, inline_router

Command = Callable[..., Any]

DEFAULT_OUT = "olp-ray-out"
REJECTS = get_args(Rejects)

SCENARIO_KEYS = (
    "trace", "workload", "arrivals", "sessions", "requests", "rate", "load", "fleet", "mode", "predictor", "rejects"
)  # fmt: skip

arrivals_option = click.option(
    "--arrivals",
    metavar="TEXT",
    help="Arrival process: poisson, gamma:CV, or rates:0.4@0,0.6@1500 (requests/s from second).  [poisson]",
)
sessions_option = click.option(
    "--sessions", metavar="TURNS:THINK_S", help="Multi-turn sessions with shared prefixes, for example 3.5:20."
)

_SCENARIO_FLAGS = (
    click.option("--scenario", "scenario_file", metavar="FILE.yaml", help="Scenario file; flags win over it."),
    click.option("--trace", metavar="FILE", help="Trace to replay, in any format that `workload describe` reads."),
    click.option("--workload", metavar="NAME", help="Generated workload, when there is no --trace.  [lmsys]"),
    arrivals_option,
    sessions_option,
    click.option("--requests", type=int, metavar="N", help="Use this many requests.  [all of a trace; 2000 generated]"),
    click.option("--rate", type=float, metavar="R", help="Rescale arrivals to R requests per second."),
    click.option(
        "--load",
        type=float,
        metavar="X",
        help="Rescale arrivals to X times what the full fleet serves.  [1.25 if generated]",
    ),
    click.option("--fleet", metavar="TEXT", help="For example 4xa100-8b or 2xa100-8b+2xh100-8b.  [4xa100-8b]"),
    click.option(
        "--mode", metavar="timed|period", help="Milliseconds, or the period model.  [timed; of `bound`: period]"
    ),
)
_ROUTER_FLAGS = (
    click.option("--predictor", metavar="NAME", help="Output lengths as the router sees them.  [uniform:0.2]"),
    click.option(
        "--rejects",
        type=click.Choice(REJECTS),
        help="When a waiting request is turned away, whatever the policy with a central queue.  [the preset's]",
    ),
)


def scenario_options(command: Command) -> Command:
    """Add the scenario flags; the command gets `scenario`, a `ScenarioConfig`, instead of them."""
    return _with_scenario(command, (*_SCENARIO_FLAGS, *_ROUTER_FLAGS))


def bound_options(command: Command) -> Command:
    """As `scenario_options`, without the flags of a router: a bound has none, knows all lengths and serves everything.

    A scenario that comes from flags alone and names no mode is one of the period model.
    """
    return _with_scenario(command, _SCENARIO_FLAGS, mode="period")


def _with_scenario(
    command: Command, options: Sequence[Callable[[Command], Command]], mode: str | None = None
) -> Command:
    @functools.wraps(command)
    def with_scenario(**given: Any) -> Any:
        flags = {name: given.pop(name, None) for name in ("scenario_file", *SCENARIO_KEYS)}
        if flags["scenario_file"] is None and flags["mode"] is None:
            flags["mode"] = mode
        return command(scenario=build_scenario(flags.pop("scenario_file"), **flags), **given)

    wrapped: Command = with_scenario
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


def build_scenario(file: str | None, **flags: Any) -> ScenarioConfig:
    """The scenario of a file (or of the defaults) with the flags that are not None put in.

    A rate given as a flag replaces the file's load and the other way round. Raises `ConfigError`.
    """
    base = load_scenario(file) if file else ScenarioConfig()
    given = {name: value for name, value in flags.items() if value is not None}
    if "rejects" in given:
        given["router"] = base.router.model_copy(update={"rejects": given.pop("rejects")})
    replaced = {"rate", "load"} if {"rate", "load"} & set(given) else set()
    kept = {name: value for name, value in base if name not in replaced}
    return validate({**kept, **given}, ScenarioConfig, "command line")


def with_seeds(scenario: ScenarioConfig, seeds: Iterable[int]) -> ScenarioConfig:
    """The scenario with these seeds. Raises `ConfigError`."""
    return validate({**dict(scenario), "seeds": tuple(seeds)}, ScenarioConfig, "command line")


_RUNTIME_FLAGS = (
    click.option(
        "--runtime",
        type=click.Choice(["inline", "ray"]),
        default="inline",
        show_default=True,
        help="Where prices are computed: in this process, or by price-shard actors on Ray. Results are the same.",
    ),
    click.option("--shards", type=int, metavar="N", help="Blocks of devices that are priced apart.  [1]"),
)


def runtime_options(command: Command) -> Command:
    """Add --runtime and --shards; the command gets `open_router` (None: in this process) instead of them."""

    @functools.wraps(command)
    def with_runtime(**given: Any) -> Any:
        return command(open_router=router_source(given.pop("runtime"), given.pop("shards")), **given)

    return functools.reduce(lambda wrapped, flag: flag(wrapped), reversed(_RUNTIME_FLAGS), with_runtime)


def router_source(runtime: str, shards: int | None) -> OpenRouter | None:
    """What opens the routers of a run, None for the plain one. With Ray, starts one local Ray for all runs."""
    if shards is not None and shards < 1:
        raise ConfigError(f"command line: shards: expected at least 1, got {shards}")
    if runtime == "ray":
        from olp_ray.runtime.wiring import open_ray, ray_router

        open_ray()
        return functools.partial(ray_router, shards=shards or 1)
    return None if shards is None else functools.partial(inline_router, blocks=shards)


policy_option = click.option("--policy", metavar="NAME[:PRESET]", help="Routing policy.  [online_lp:balanced]")


def out_option(command_name: str) -> Callable[[Command], Command]:
    """--out, by default a folder of the command's own, so that no command replaces what another wrote."""
    return click.option(
        "--out", metavar="DIR", default=f"{DEFAULT_OUT}/{command_name}", show_default=True, help="Output folder."
    )
