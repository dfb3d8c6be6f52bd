"""Tables for the terminal, of metrics that were computed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pandas as pd
from rich.table import Table

from olp_ray.report.intervals import Interval, mean_interval
from olp_ray.report.metrics import METRICS

COMPARISON = (
    "ttft_p50_s",
    "ttft_p95_s",
    "ttft_p99_s",
    "e2e_mean_s",
    "e2e_p50_s",
    "e2e_p95_s",
    "e2e_p99_s",
    "attainment",
    "goodput_per_s",
    "max_wait_s",
    "never_started",
    "rejected",
)


def comparison_table(
    runs: pd.DataFrame, *, sort_by: str = "e2e_mean_s", columns: Sequence[str] = COMPARISON, title: str = ""
) -> Table:
    """One row per policy, best first; means over seeds, with 95 % half widths where there are two seeds or more.

    runs has the columns policy, seed and the metrics, one row per run.
    """
    table = Table(title=title or None, title_justify="left")
    table.add_column("policy")
    for name in columns:
        table.add_column(f"{_short(name)}{_arrow(name)}", justify="right")
    for policy in ranked(runs, sort_by):
        rows = runs[runs["policy"] == policy]
        table.add_row(policy, *(show_interval(mean_interval(rows[name].tolist())) for name in columns))
    return table


def ranked(runs: pd.DataFrame, metric: str) -> list[str]:
    """Policies of `runs`, best mean of the metric first."""
    means = runs.groupby("policy", sort=False)[metric].mean()
    return [str(name) for name in means.sort_values(ascending=METRICS[metric].better != "higher", kind="stable").index]


def summary_table(metrics: Mapping[str, float], title: str = "") -> Table:
    """One row per metric with its meaning."""
    table = Table(title=title or None, title_justify="left")
    for name, justify in (("metric", "left"), ("value", "right"), ("unit", "left"), ("meaning", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, value in metrics.items():
        metric = METRICS[name]
        table.add_row(name, show_number(value), metric.unit, metric.doc)
    return table


def show_interval(interval: Interval) -> str:
    """`12.3 ±0.4`, or the mean alone."""
    if math.isnan(interval.half_width) or interval.half_width == 0:
        return show_number(interval.mean)
    return f"{show_number(interval.mean)} ±{show_number(interval.half_width)}"


def show_number(value: float) -> str:
    """Three significant digits, whole numbers in full, `-` for NaN."""
    if math.isnan(value):
        return "-"
    if value == round(value) and abs(value) < 1e9:
        return f"{value:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, 6)}f}"


def _short(name: str) -> str:
    return name.removesuffix("_s").replace("_per", "/s").replace("_", " ")


def _arrow(name: str) -> str:
    return {"lower": " ↓", "higher": " ↑"}.get(METRICS[name].better, "")
