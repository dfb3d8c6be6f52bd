"""The command: plan, run what is missing, print tables and gates. Nothing is decided here."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.quality import page, weights
from benchmarks.quality.cells import CELLS, Cell, PeriodCell
from benchmarks.quality.entries import BASELINES, VARIANTS, ablations, check_entry, ours
from benchmarks.quality.runs import Task, is_current, plan, run_all
from olp_ray.config import nearest
from olp_ray.errors import ConfigError, OlpRayError

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


@click.command(context_settings={"show_default": True})
@click.option("--traces", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder of the traces.")
@click.option("--out", type=click.Path(path_type=Path), default="quality-runs", help="Runs are kept and resumed here.")
@click.option("--cells", default="*", help="Comma-separated names or patterns of cells.")
@click.option("--seeds", default="101,102,103,104,105", help="Comma-separated seeds.")
@click.option("--policies", help="Comma-separated POLICY[:preset[+ablation]] in place of all; `ours`, `baselines`.")
@click.option("--variants", default=",".join(VARIANTS), help="shed, serve or both.")
@click.option("--periods", default=20_000, help="Requests arrive for so many periods.")
@click.option("--workers", default=2, help="Processes.")
@click.option("--any-version", is_flag=True, help="Keep runs of other versions of the code.")
@click.option("--weights", "with_weights", is_flag=True, help="Run the study of the weights in place of the matrix.")
@click.option("--tables-only", is_flag=True, help="Run nothing.")
@click.option("--write-page", is_flag=True, help="Write the tables into docs/results.md.")
@click.option("--quick", is_flag=True, help="Two short cells, one seed, built-in lengths.")
def main(
    traces: Path | None, out: Path, cells: str, seeds: str, policies: str | None, variants: str, periods: int,
    workers: int, any_version: bool, with_weights: bool, tables_only: bool, write_page: bool, quick: bool,
) -> None:  # fmt: skip
    """Run the matrix (what is not yet in --out), print its tables and gates."""
    numbers = [int(seed) for seed in seeds.split(",")]
    if quick:
        chosen: list[Cell] = [CELLS[name] for name in QUICK_CELLS]
        entries: dict[str, Sequence[str]] = dict.fromkeys(VARIANTS, QUICK_ENTRIES)
        numbers, periods, traces, out = numbers[:1], QUICK_PERIODS, None, out / "quick"
    else:
        chosen = _cells(cells, traces)
        entries = {variant: _entries(policies, variant) for variant in variants.split(",")}
    if not tables_only:
        tasks = (
            weights.plan(numbers, periods, traces, out)
            if with_weights
            else plan(chosen, entries, numbers, periods, traces, out)
        )
        missing = [task for task in tasks if not is_current(task, any_version)]
        click.echo(f"{len(tasks)} runs, {len(tasks) - len(missing)} of them done before")
        run_all(missing, min(workers, max(1, len(missing))), _told)
    text = weights.report(out) if with_weights else page.report(out)
    click.echo(text)
    if write_page:
        (weights if with_weights else page).write(out)


def _told(done: int, total: int, task: Task) -> None:
    click.echo(f"[{done}/{total}] {task.cell.name} {task.variant} {task.entry} seed {task.seed}", err=True)


def _cells(patterns: str, traces: Path | None) -> list[Cell]:
    """Matching cells in the order of the matrix; timed ones need the traces."""
    wanted = patterns.split(",")
    for pattern in wanted:
        if not fnmatch.filter(CELLS, pattern):
            raise click.UsageError(f"--cells {pattern!r} matches nothing{nearest(pattern, CELLS)}")
    found = [cell for name, cell in CELLS.items() if any(fnmatch.fnmatch(name, pattern) for pattern in wanted)]
    return [cell for cell in found if traces is not None or isinstance(cell, PeriodCell)]


def _entries(text: str | None, variant: str) -> list[str]:
    groups = {"baselines": list(BASELINES), "ours": ours(variant), "ablations": ablations(variant)}
    names: list[str] = []
    for name in (text or "ours,baselines,ablations").split(","):
        names += groups.get(name, [name])
    try:
        for name in names:
            check_entry(name)
    except (ConfigError, OlpRayError) as error:
        raise click.UsageError(f"--policies: {error}") from error
    return list(dict.fromkeys(names))


if __name__ == "__main__":
    main()
