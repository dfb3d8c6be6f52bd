"""`olp-ray sweep`."""

from __future__ import annotations

import click
from rich.console import Console

from olp_ray.cli.output import progress_bar
from olp_ray.config.sweep import load_sweep


@click.command()
@click.argument("file", metavar="SWEEP.yaml")
@click.option("--out", default="olp-ray-sweep", show_default=True, metavar="DIR", help="Output folder.")
def sweep(file: str, out: str) -> None:
    """Run many routers on one scenario on Ray Tune, into one results.parquet.

    An interrupted sweep goes on when the same command is run again.

    \b
    Examples:
      olp-ray sweep tune_configs/smoke.yaml --out smoke
      olp-ray front smoke/results.parquet
    """
    from olp_ray.sweep.run import run_sweep

    config = load_sweep(file)
    with progress_bar("running trials") as progress:
        outcome = run_sweep(config, out, progress)
    console = Console()
    for failure in outcome.failures:
        console.print(f"failed: {failure}", soft_wrap=True)
    console.print(f"{outcome.trials} trials are in {outcome.results}", soft_wrap=True)
    console.print(f"Next: olp-ray front {outcome.results}", soft_wrap=True)
