"""The command: plan, run what is missing, print tables and gates. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.quality import page, weights
from benchmarks.quality.arguments import read_cells, read_entries, read_seeds, read_variants
from benchmarks.quality.cells import CELLS, Cell
from benchmarks.quality.entries import ABLATIONS, BASELINES, VARIANTS, ours
from benchmarks.quality.runs import Task, is_current, plan, run_all

QUICK_CELLS = ("slot-0.5", "kv-0.5")
QUICK_ENTRIES = (
    "central_fifo",
    "central_sjf",
    "on_time_sjf",
    "sjf_reservation",
    "online_lp:attainment",
    "online_lp:e2e",
)
QUICK_PERIODS = 1500
QUICK_NOTE = "A quick run shows that the command works; it is too short to judge by, whatever its gates say."

NAMES = f"""Cells: {", ".join(CELLS)}. Those with `conv`, `code`, `arena` and `mooncake` are timed and need --traces.

Entries of --policies, by group. baselines: {", ".join(BASELINES)}. ours:
{", ".join(dict.fromkeys(entry for variant in VARIANTS for entry in ours(variant)))}. ablations: of one of ours,
{", ".join(f"+{name}" for name in ABLATIONS)}."""


@click.command(context_settings={"show_default": True}, epilog=NAMES)
@click.option(
    "--traces",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the traces. Without it lengths are generated, and timed cells are left out.",
)
@click.option("--out", type=click.Path(path_type=Path), default="quality-runs", help="Runs are kept and resumed here.")
@click.option("--cells", default="*", help="Comma-separated names or patterns of cells; names are below.")
@click.option("--seeds", default="101,102,103,104,105", help="Comma-separated seeds.")
@click.option(
    "--policies", help="Comma-separated POLICY[:preset[+ablation]] or groups, in place of all; names are below."
)
@click.option(
    "--variants",
    default=",".join(VARIANTS),
    help="shed: policies with a central queue reject what can not be in time any more; serve: nothing is rejected.",
)
@click.option("--periods", type=click.IntRange(min=1), default=20_000, help="Requests arrive for so many periods.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes.")
@click.option("--any-version", is_flag=True, help="Keep runs of other versions of the code.")
@click.option("--weights", "with_weights", is_flag=True, help="Run the study of the weights in place of the matrix.")
@click.option("--tables-only", is_flag=True, help="Run nothing.")
@click.option("--write-page", is_flag=True, help="Write the tables into docs/results.md.")
@click.option("--quick", is_flag=True, help="Two short cells, one seed, built-in lengths: that it works, no verdict.")
def main(
    traces: Path | None, out: Path, cells: str, seeds: str, policies: str | None, variants: str, periods: int,
    workers: int, any_version: bool, with_weights: bool, tables_only: bool, write_page: bool, quick: bool,
) -> None:  # fmt: skip
    """Run the matrix (what is not yet in --out), print its tables and gates.

    \b
    Examples:
      python -m benchmarks.quality --quick
      python -m benchmarks.quality --cells 'slot-*' --seeds 101 --policies baselines,online_lp:e2e --variants serve
      python -m benchmarks.quality --traces DIR --out DIR
    """
    if quick and write_page:
        raise click.UsageError("--write-page: a quick run is too short to judge by, so it is not written")
    numbers = read_seeds(seeds)
    if quick:
        chosen: list[Cell] = [CELLS[name] for name in QUICK_CELLS]
        entries: dict[str, Sequence[str]] = dict.fromkeys(VARIANTS, QUICK_ENTRIES)
        numbers, periods, traces, out = numbers[:1], QUICK_PERIODS, None, out / "quick"
    else:
        chosen = [] if with_weights else read_cells(cells, traces)
        entries = {variant: read_entries(policies, variant) for variant in read_variants(variants)}
    if not tables_only:
        tasks = (
            weights.plan(numbers, periods, traces, out)
            if with_weights
            else plan(chosen, entries, numbers, periods, traces, out)
        )
        missing = [task for task in tasks if not is_current(task, any_version)]
        click.echo(f"{len(tasks)} runs, {len(tasks) - len(missing)} of them done before")
        run_all(missing, min(workers, max(1, len(missing))), _told)
    if quick:
        click.echo(QUICK_NOTE)
    text = weights.report(out) if with_weights else page.report(out)
    click.echo(text)
    if write_page:
        (weights if with_weights else page).write(out)


def _told(done: int, total: int, task: Task) -> None:
    click.echo(f"[{done}/{total}] {task.cell.name} {task.variant} {task.entry} seed {task.seed}", err=True)


if __name__ == "__main__":
    main()
