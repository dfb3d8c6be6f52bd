"""`olp-ray simulate`."""

from __future__ import annotations

import dataclasses
import math

import click
import pandas as pd
from rich.console import Console

from olp_ray.cli.explain import answer_table, print_legend
from olp_ray.cli.options import out_option, policy_option, runtime_options, scenario_options, with_seeds
from olp_ray.cli.output import COMPILING, print_table, progress_bar, show_arrivals, show_replaced
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report.tables import summary_table
from olp_ray.sim.result import Result
from olp_ray.sweep.compiling import compiles
from olp_ray.sweep.outputs import RUN_FILES, claim_folder, save_run
from olp_ray.sweep.trial import OpenRouter, inline_router, run_seed, settle_arrivals


@click.command()
@scenario_options
@policy_option
@click.option("--seed", type=int, metavar="S", help="Where a trace starts, and every random draw.  [0]")
@click.option("--explain", "questions", multiple=True, metavar="ID@TIME", help="Ask about a request at a time (s).")
@runtime_options
@out_option("simulate")
def simulate(
    scenario: ScenarioConfig,
    policy: str | None,
    seed: int | None,
    questions: tuple[str, ...],
    open_router: OpenRouter | None,
    out: str,
) -> None:
    """Simulate one policy on one scenario: every request and every decision, as tables and figures.

    \b
    Examples:
      olp-ray simulate
      olp-ray simulate --trace trace.csv --fleet 4xa100-8b --load 0.9 --policy online_lp:e2e
      olp-ray simulate --policy central_fifo --requests 500 --mode period --fleet 4xB24M40000 --rate 0.4
      olp-ray simulate --runtime ray --shards 3 --requests 500
      olp-ray simulate --explain r0973@11 --explain r1500@12

    Writes requests.parquet, decisions.parquet, timeline.parquet, prices.parquet (if the policy has prices),
    handle_times.parquet (wall time of the router's calls), summary.json and two figures to --out.
    """
    if policy is not None:
        scenario = scenario.model_copy(update={"router": scenario.router.with_policy(policy)})
    asked = [parse_question(text) for text in questions]
    if seed is not None:
        scenario = with_seeds(scenario, [seed])
    replaced = claim_folder(out, RUN_FILES)
    with progress_bar("measuring what the fleet can serve") as progress:
        if compiles(scenario, [scenario.router]):
            progress.say(COMPILING)
        arrivals = settle_arrivals(scenario, progress)
    show_arrivals(arrivals, scenario.mode)
    with progress_bar("simulating") as progress:
        run = run_seed(
            scenario,
            scenario.seeds[0],
            arrivals.rate,
            open_router=open_router or inline_router,
            timeline=True,
            progress=progress,
            questions=asked,
        )
        figures = save_run(run, scenario, arrivals, out)
    title = f"{scenario.router.policy}:{scenario.router.preset}, seed {run.seed}"
    print_table(summary_table(run.metrics, scenario.mode, title))
    answers = [(time_s, dataclasses.asdict(answer)) for time_s, answer in run.answers]
    for time_s, answer in answers:
        print_table(answer_table(answer, f"at {time_s:g} s"))
    print_legend(answer for _, answer in answers)
    for time_s, request_id in asked:
        if not any(time_s == at_s and answer.request_id == request_id for at_s, answer in run.answers):
            Console().print(no_answer(request_id, time_s, run.result), highlight=False, soft_wrap=True)
    took = run.decision_time
    Console().print(
        f"The router was called {took['calls']:.0f} times: mean {took['mean_ms']:.3g} ms, p99 {took['p99_ms']:.3g} ms, "
        f"largest {took['max_ms']:.3g} ms on this machine. Computing prices, or waiting for those of shards, "
        "is part of it, and the first calls load compiled kernels.",
        soft_wrap=True,
        highlight=False,
    )
    show_replaced(replaced, out)
    Console().print(f"Tables are in {out}. Open {figures[-1]}", soft_wrap=True)


def no_answer(request_id: str, time_s: float, result: Result) -> str:
    """Why nothing can be said of the request at that time."""
    requests = result.requests
    found = requests[requests["request_id"] == request_id]
    if found.empty:
        ids = requests["request_id"]
        return f"{request_id} is no request of this run: ids are {ids.min()} to {ids.max()}"
    if time_s < (arrival_s := found["arrival_s"].iloc[0]):
        return f"{request_id} has not arrived at {time_s:g} s: it does at {arrival_s:.3f} s"
    gone = f"{request_id} is no longer there at {time_s:g} s: {found['status'].iloc[0]}"
    return gone + rejection(result.decisions[result.decisions["request_id"] == request_id])


def rejection(decisions: pd.DataFrame) -> str:
    """When and why a request was rejected, by the decisions about it; empty if it was not."""
    rejected = decisions[decisions["decision"] == "reject"]
    if rejected.empty:
        return ""
    last = rejected.iloc[-1]
    return f" at {last['time_s']:.3f} s: {last['reject_reason']} (limit {last['limit']}; knob {last['knob']})"


def parse_question(text: str) -> tuple[float, str]:
    """(time_s, request id) of ID@TIME. Raises `ConfigError`."""
    request_id, at, time = text.rpartition("@")
    try:
        time_s = float(time)
    except ValueError:
        time_s = math.nan
    if not (at and request_id and time_s >= 0 and math.isfinite(time_s)):
        raise ConfigError(f"--explain {text!r}: expected ID@TIME with a time in seconds >= 0, for example r0973@11")
    return time_s, request_id
