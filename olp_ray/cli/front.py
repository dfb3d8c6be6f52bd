"""`olp-ray front`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from olp_ray.cli.output import print_table
from olp_ray.errors import ConfigError
from olp_ray.report.metrics import METRICS
from olp_ray.report.tables import show_number
from olp_ray.sweep.front import Front, draw_front, read_front
from olp_ray.sweep.results import PARAM


@click.command()
@click.argument("file", metavar="RESULTS.parquet")
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Objectives.  [those of the sweep]")
@click.option("--out", metavar="FILE.png", help="Figure.  [front.png beside the results]")
def front(file: str, metrics: tuple[str, ...], out: str | None) -> None:
    """Print and draw the trials of a sweep that no other trial beats in every objective. Needs no Ray.

    The figure shows the first two objectives; the front is over all of them.

    \b
    Examples:
      olp-ray front smoke/results.parquet
      olp-ray front smoke/results.parquet --metric ttft_p99_s --metric output_tokens_per_s
    """
    found = read_front(file, {name: direction_of(name) for name in metrics} or None)
    path = draw_front(found, out or Path(file).with_name("front.png"))
    print_table(front_table(found))
    Console().print(f"Open {path}", soft_wrap=True)


def direction_of(metric: str) -> str:
    """min or max, as the metric's dictionary says."""
    known = METRICS.get(metric)
    if known is None or not known.better:
        raise ConfigError(f"command line: --metric: {metric!r} is no metric with a better side; see olp-ray compare")
    return "max" if known.better == "higher" else "min"


def front_table(found: Front) -> Table:
    """One row per member: its objectives and its point."""
    title = f"{len(found.members)} of {len(found.trials)} trials are on the front; hypervolume {found.hypervolume:.4g}"
    names = [*found.objectives, *found.params]
    table = Table("trial", *(name.removeprefix(PARAM) for name in names), title=title, title_justify="left")
    for _, trial in found.members.iterrows():
        table.add_row(str(int(trial["trial"])), *(show_number(float(trial[name])) for name in names))
    return table
