"""`olp-ray workload`."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from olp_ray.cli.options import DEFAULT_OUT, arrivals_option, sessions_option
from olp_ray.cli.output import print_table, progress_bar
from olp_ray.config.workload import ArrivalsConfig, SessionsConfig
from olp_ray.report.tables import show_number
from olp_ray.report.workload_plot import plot_workload
from olp_ray.workload.describe import QUANTILES, Description, describe, write_common
from olp_ray.workload.generators import GENERATORS, generate
from olp_ray.workload.traces import read_trace


@click.group()
def workload() -> None:
    """Describe or convert a trace, or list or write generated workloads."""


@workload.command("describe")
@click.argument("trace")
@click.option("--out", metavar="FILE.png", help="Figure.  [olp-ray-out/workload/TRACE.png]")
def describe_command(trace: str, out: str | None) -> None:
    """Print what TRACE is like: rate, burstiness, lengths; and draw it. The format is found from the file.

    \b
    Example:
      olp-ray workload describe trace.csv.gz
    """
    figure = Path(DEFAULT_OUT, "workload", f"{Path(trace).name.split('.')[0]}.png") if out is None else Path(out)
    with progress_bar(f"reading {trace}"):
        frame = read_trace(trace)
    found = describe(frame)
    print_table(description_table(found, trace))
    Console().print(f"Open {plot_workload(frame, figure, timed=found.timed)}", soft_wrap=True)


@workload.command("convert")
@click.argument("trace")
@click.argument("out")
def convert_command(trace: str, out: str) -> None:
    """Write TRACE, in whatever format, to OUT as the common CSV.

    \b
    Example:
      olp-ray workload convert AzureLLMInferenceTrace_conv.csv conv.csv
    """
    with progress_bar(f"reading {trace}"):
        frame = read_trace(trace)
    write_common(frame, out)
    Console().print(f"{len(frame)} requests are in {out}", soft_wrap=True)


@workload.command("generate")
@click.argument("out")
@click.option("--workload", "name", metavar="NAME", default="lmsys", show_default=True, help="See `workload list`.")
@click.option("--requests", type=click.IntRange(min=1), default=2000, show_default=True, metavar="N")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True, metavar="R")
@arrivals_option
@sessions_option
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="S")
def generate_command(
    out: str, name: str, requests: int, rate: float, arrivals: str | None, sessions: str | None, seed: int
) -> None:
    """Write a generated workload to OUT as the common CSV.

    \b
    Examples:
      olp-ray workload generate trace.csv --workload arena --rate 20 --arrivals gamma:3
      olp-ray workload generate chats.csv --sessions 3.5:20 --rate 5
    """
    frame = generate(
        name,
        requests,
        rate,
        seed,
        arrivals=None if arrivals is None else ArrivalsConfig.parse(arrivals),
        sessions=None if sessions is None else SessionsConfig.parse(sessions),
    )
    write_common(frame, out)
    Console().print(f"{len(frame)} requests are in {out}", soft_wrap=True)


@workload.command("list")
def list_command() -> None:
    """List the workloads that can be generated, for --workload."""
    table = Table("workload", "what it stands for", "where its lengths come from")
    for name, generator in GENERATORS.items():
        table.add_row(name, generator.doc, generator.source)
    Console().print(table)


def description_table(found: Description, title: str) -> Table:
    """A page on one trace."""
    table = Table("", "", title=title, title_justify="left", show_header=False)
    table.add_row("requests", f"{found.requests}")
    if found.timed:
        table.add_row("span", f"{show_number(found.span_s)} s")
        table.add_row("mean rate", f"{show_number(found.rate_per_s)} requests/s")
        table.add_row("variation of gaps", f"{show_number(found.gap_variation)} (1 is Poisson, more is bursty)")
        table.add_row("busiest of 60 spans", f"{show_number(found.peak_to_mean)} times the mean rate")
    else:
        table.add_row("arrivals", "no arrival times in the file; --rate or --load of a run sets them")
    if found.sorted_on_reading:
        table.add_row("order", "sorted by arrival on reading: the file has another order")
    for name, spread in (("prompt tokens", found.prompt_tokens), ("output tokens", found.output_tokens)):
        quantiles = ", ".join(f"p{q} {show_number(v)}" for q, v in zip(QUANTILES, spread.quantiles, strict=True))
        table.add_row(name, f"mean {show_number(spread.mean)}, {quantiles}, largest {show_number(spread.largest)}")
    for name, count in found.extras.items():
        table.add_row(name, f"{count} different values")
    return table
