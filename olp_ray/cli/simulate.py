"""`olp-ray simulate`."""

from __future__ import annotations

import click
from rich.console import Console

from olp_ray.cli.options import out_option, policy_option, runtime_options, scenario_options, with_seeds
from olp_ray.cli.output import print_table, progress_bar, show_arrivals
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.report.tables import summary_table
from olp_ray.sweep.outputs import save_run
from olp_ray.sweep.trial import OpenRouter, inline_router, run_seed, settle_arrivals


@click.command()
@scenario_options
@policy_option
@click.option("--seed", type=int, metavar="S", help="Where a trace starts, and every random draw.  [0]")
@runtime_options
@out_option
def simulate(
    scenario: ScenarioConfig, policy: str | None, seed: int | None, open_router: OpenRouter | None, out: str
) -> None:
    """Simulate one policy on one scenario: every request and every decision, as tables and figures.

    \b
    Examples:
      olp-ray simulate
      olp-ray simulate --trace trace.csv --fleet 4xa100-8b --load 0.9 --policy online_lp:e2e
      olp-ray simulate --policy central_fifo --requests 500 --mode period --fleet 4xB24M40000 --rate 0.4
      olp-ray simulate --runtime ray --shards 3 --requests 500

    Writes requests.parquet, decisions.parquet, timeline.parquet, summary.json and two figures to --out.
    """
    if policy is not None:
        scenario = scenario.model_copy(update={"router": scenario.router.with_policy(policy)})
    if seed is not None:
        scenario = with_seeds(scenario, [seed])
    with progress_bar("measuring what the fleet can serve"):
        arrivals = settle_arrivals(scenario)
    show_arrivals(arrivals)
    with progress_bar("simulating") as progress:
        run = run_seed(
            scenario,
            scenario.seeds[0],
            arrivals.rate,
            open_router=open_router or inline_router,
            timeline=True,
            progress=progress,
        )
        figures = save_run(run, scenario, arrivals, out)
    print_table(summary_table(run.metrics, title=f"{scenario.router.policy}:{scenario.router.preset}, seed {run.seed}"))
    Console().print(f"Tables are in {out}. Open {figures[-1]}", soft_wrap=True)
