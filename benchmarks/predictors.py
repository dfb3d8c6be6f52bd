"""What a prediction of the output's length is worth: the same requests and router under each predictor.

    python -m benchmarks.predictors --traces DIR --out DIR [--write-page]

The two sustained overloads of the matrix, on pairs of lengths from azure2023_conv; the router's calibration is on top
of every predictor. Runs are those of `benchmarks.quality`, kept and resumed in the same way.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import click
import pandas as pd

from benchmarks.quality.arguments import read_seeds
from benchmarks.quality.cells import CELLS, PeriodCell
from benchmarks.quality.entries import SERVE, SHED
from benchmarks.quality.runs import Task, is_current, read_runs, run_all
from benchmarks.quality.verdicts import by_seed, is_better_higher, runs_of, show
from benchmarks.results_page import records_table, replace_section

WORKLOADS = ("slot-0.5", "kv-0.5")
PREDICTORS = ("perfect", "uniform:0.2", "lognormal:0.5", "class_mean", "online", "mean", "cap:2000")
REFERENCE = "mean"
FOLDER = "predictors"


class Question(NamedTuple):
    """The metric that is looked at in a variant, under the preset that answers for it."""

    metric: str
    variant: str
    entry: str


QUESTIONS = (
    Question("e2e_mean_s", SERVE, "online_lp:e2e"),
    Question("attainment", SHED, "online_lp:attainment"),
)
HEALTH = (("ttft_p99_s", "p99 TTFT"), ("max_wait_s", "max wait"), ("never_started", "never started"),
          ("rejected", "rejected"))  # fmt: skip

INTRO = """## What a length prediction is worth

`python -m benchmarks.predictors --traces DIR --out DIR --write-page` writes this section. Requests arrive for {periods}
periods at .5 per period, lengths are pairs of azure2023_conv, and the router's calibration works on top of every
predictor. `class_mean` knows each request's quarter of the true lengths (the trace has no classes); `online` learns by
size of prompt from what has finished, starting at 256 tokens; `mean` knows the mean of the whole run beforehand; `cap`
predicts 2000 for all. Gains are over `mean`, paired over seeds, ± one standard error; positive is better."""


def tasks(seeds: list[int], periods: int, traces: Path, out: Path) -> list[Task]:
    """Seed by seed, so that a stopped run has whole seeds."""
    return [
        Task(_cell(name, predictor), question.variant, question.entry, seed, periods, traces, out / FOLDER)
        for seed in seeds
        for name in WORKLOADS
        for predictor in PREDICTORS
        for question in QUESTIONS
    ]


def report(runs: pd.DataFrame, periods: int) -> str:
    """A table per question."""
    parts = [INTRO.format(periods=f"{periods:,}")]
    for question in QUESTIONS:
        rows = [_row(runs, question, name, predictor) for name in WORKLOADS for predictor in PREDICTORS]
        title = f"### {question.metric}, `{question.entry}`, {question.variant}"
        parts += [title, records_table([row for row in rows if row])]
    return "\n\n".join(parts)


def _cell(name: str, predictor: str) -> PeriodCell:
    cell = CELLS[name]
    assert isinstance(cell, PeriodCell)
    return dataclasses.replace(cell, name=f"{name}-{predictor.replace(':', '_')}", predictor=predictor)


def _row(runs: pd.DataFrame, question: Question, name: str, predictor: str) -> dict[str, str]:
    def values(of: str, metric: str) -> pd.Series:
        return by_seed(runs_of(runs, _cell(name, of).name, question.variant), question.entry, metric)

    found, reference = values(predictor, question.metric), values(REFERENCE, question.metric)
    both = found.index.intersection(reference.index)
    if both.empty:
        return {}
    gain = found[both] - reference[both] if is_better_higher(question.metric) else 1 - found[both] / reference[both]
    error = f" ± {100 * gain.std(ddof=1) / len(gain) ** 0.5:.1f}" if len(gain) > 1 else ""
    unit = " points" if is_better_higher(question.metric) else "%"
    return {
        "cell": name,
        "predictor": predictor,
        "mean": show(question.metric, float(found[both].mean())),
        "gain": f"{100 * gain.mean():+.1f}{error}{unit}",
        "seeds": str(len(both)),
        **{title: show(metric, float(values(predictor, metric).mean())) for metric, title in HEALTH},
    }


@click.command(context_settings={"show_default": True})
@click.option("--traces", type=click.Path(path_type=Path, exists=True, file_okay=False), required=True)
@click.option("--out", type=click.Path(path_type=Path), default="quality-runs", help="Runs are kept and resumed here.")
@click.option("--seeds", default="101,102,103", help="Comma-separated seeds.")
@click.option("--periods", type=click.IntRange(min=1), default=6000, help="Requests arrive for so many periods.")
@click.option("--workers", type=click.IntRange(min=1), default=2, help="Processes.")
@click.option("--write-page", is_flag=True, help="Write the tables into docs/results.md.")
def main(traces: Path, out: Path, seeds: str, periods: int, workers: int, write_page: bool) -> None:
    """Run what is missing and print the tables."""
    wanted = tasks(read_seeds(seeds), periods, traces, out)
    run_all([task for task in wanted if not is_current(task)], workers, _told)
    text = report(read_runs(out / FOLDER), periods)
    click.echo(text)
    if write_page:
        replace_section("predictors", text)


def _told(done: int, total: int, task: Task) -> None:
    click.echo(f"[{done}/{total}] {task.cell.name} {task.entry} seed {task.seed}", err=True)


if __name__ == "__main__":
    main()
