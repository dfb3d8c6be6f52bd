"""Do the weights move outcomes: each weight is raised from 0 and its own metric watched, on two workloads.

The other weights are such that they pull elsewhere, so that a weight has something to win. Everything is served.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.quality.cells import CELLS
from benchmarks.quality.entries import SERVE, router_config
from benchmarks.quality.runs import Task, read_runs
from benchmarks.quality.verdicts import is_better_higher, show
from benchmarks.results_page import RESULTS, records_table, replace_section
from olp_ray.config.router import ObjectiveConfig

WORKLOADS = ("slot-0.5", "kv-0.5")
PERIODS = 6000  # at most; long queues are not what is asked here
FOLDER = "weights"
NAMES = ("throughput", "e2e", "ttft", "qps", "tail_e2e", "tail_ttft")
DEADLINES = (0.0, 0.0, 0.0, 0.01, 1.0, 1.0)
LATENCY = (0.0, 0.01, 0.01, 0.01, 0.0, 0.0)


class Study(NamedTuple):
    """`weight` takes each of `values` while the others stay as in `others`."""

    weight: str
    metric: str
    others: tuple[float, ...]
    values: tuple[float, ...]


STUDIES = (
    Study("throughput", "tokens_in_time_per_s", DEADLINES, (0.0, 0.01, 0.1, 1.0)),
    Study("e2e", "e2e_mean_s", DEADLINES, (0.0, 0.01, 0.1, 1.0)),
    Study("ttft", "ttft_mean_s", DEADLINES, (0.0, 0.01, 0.1, 1.0)),
    Study("qps", "finished_in_time", (0.01, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 1.0, 10.0, 100.0)),
    Study("tail_e2e", "e2e_attainment", LATENCY, (0.0, 0.3, 3.0, 30.0)),
    Study("tail_ttft", "ttft_attainment", LATENCY, (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)),
)

INTRO = f"""## Weights move outcomes

`python -m benchmarks.quality --weights --traces DIR --out DIR --write-page` writes this section. One weight rises from
0, the others stay; everything is served; requests arrive for at most {PERIODS} periods. "right way" says whether the
largest value beats 0 by more than one standard error over seeds (with one seed: at all); "steps back" counts steps that
go the wrong way by more."""


def plan(seeds: Sequence[int], periods: int, traces: Path | None, out: Path) -> list[Task]:
    """Tasks of all studies, seed by seed."""
    return [
        _task(study, value, cell, seed, min(periods, PERIODS), traces, out / FOLDER)
        for seed in seeds
        for study in STUDIES
        for cell in WORKLOADS
        for value in study.values
    ]


def _task(
    study: Study, value: float, cell: str, seed: int, periods: int, traces: Path | None, out: Path
) -> Task:  # fmt: skip
    entry = f"online_lp@{study.weight}={value:g}"
    config = router_config("online_lp:balanced", SERVE)
    weights = dict(zip(NAMES, study.others, strict=True)) | {study.weight: value}
    router = config.model_copy(update={"objective": ObjectiveConfig(**weights)})
    return Task(CELLS[cell], SERVE, entry, seed, periods, traces, out, router=router)


def report(out: Path) -> str:
    runs = read_runs(out / FOLDER)
    if runs.empty:
        return "no runs"
    rows = [_row(runs, study, cell) for study in STUDIES for cell in WORKLOADS]
    figure = "![Share of first tokens in time by the weight on it](figures/q_of_tail_ttft.png)"
    return "\n\n".join([INTRO, records_table([row for row in rows if row]), figure])


def write(out: Path) -> None:
    _draw(read_runs(out / FOLDER), RESULTS.parent / "figures" / "q_of_tail_ttft.png")
    replace_section("weights", report(out))


def _by_value(runs: pd.DataFrame, study: Study, cell: str, metric: str) -> pd.DataFrame:
    """Seeds as rows, values of the weight as columns; only seeds with all values."""
    columns = {}
    for value in study.values:
        chosen = runs[(runs["cell"] == cell) & (runs["entry"] == f"online_lp@{study.weight}={value:g}")]
        columns[value] = chosen.set_index("seed")[metric]
    return pd.DataFrame(columns).dropna()


def _row(runs: pd.DataFrame, study: Study, cell: str) -> dict[str, str]:
    table = _by_value(runs, study, cell, study.metric)
    if table.empty:
        return {}
    sign = 1.0 if is_better_higher(study.metric) else -1.0
    rise = sign * (table[study.values[-1]] - table[0.0])
    noise = float(rise.std(ddof=1)) / np.sqrt(len(rise)) if len(rise) > 1 else 0.0
    steps = sign * np.diff(table.mean().to_numpy())
    path = ", ".join(f"{value:g}: {show(study.metric, mean)}" for value, mean in table.mean().items())
    health = {
        title: " → ".join(show(name, m) for m in _by_value(runs, study, cell, name).mean().iloc[[0, -1]])
        for name, title in (
            ("ttft_p99_s", "p99 TTFT"),
            ("max_wait_s", "max wait"),
            ("never_started", "never started"),
            ("rejected", "rejected"),
        )
    }
    return {
        "weight": study.weight,
        "cell": cell,
        "metric": study.metric,
        "value: mean of the metric": path,
        "right way": "yes" if rise.mean() > noise else "**no**",
        "steps back": f"{int((steps < -noise).sum())} of {len(steps)}",
        "seeds": str(len(table)),
        **health,
    }


def _draw(runs: pd.DataFrame, path: Path) -> None:
    from matplotlib.figure import Figure

    study = STUDIES[-1]
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axis = figure.subplots()
    for cell in WORKLOADS:
        table = _by_value(runs, study, cell, study.metric)
        error = table.std(ddof=1) / np.sqrt(len(table)) if len(table) > 1 else None
        axis.errorbar(table.columns, table.mean(), yerr=error, marker="o", capsize=3, label=cell)
    axis.set_xscale("symlog", linthresh=study.values[1])
    axis.set(xlabel="weight on TTFT in time, tail_ttft", ylabel="share of first tokens in time", ylim=(None, 1))
    axis.legend()
    axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
