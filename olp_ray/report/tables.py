"""Tables for the terminal, of metrics that were computed elsewhere."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

from olp_ray.config import Mode
from olp_ray.report.intervals import mean_interval, paired_interval
from olp_ray.report.metrics import METRICS


class Column(NamedTuple):
    """One column of the comparison: one metric, or several of one kind as `a/b/c`."""

    title: str
    metrics: tuple[str, ...]


# in the order in which they matter: where there is no room, the last ones go first
COMPARISON = (
    Column("TTFT\np50/p95/p99 (s)", ("ttft_p50_s", "ttft_p95_s", "ttft_p99_s")),
    Column("E2E\nmean (s)", ("e2e_mean_s",)),
    Column("E2E\np50/p95/p99 (s)", ("e2e_p50_s", "e2e_p95_s", "e2e_p99_s")),
    Column("SLO met", ("attainment",)),
    Column("rejected", ("rejected",)),
    Column("never started", ("never_started",)),
    Column("max wait (s)", ("max_wait_s",)),
    Column("good /s", ("goodput_per_s",)),
    Column("decide\np99 (ms)", ("p99_ms",)),
)


class Fitted(NamedTuple):
    """A table, the titles of the columns that there was no room for, the width in characters that all of them need, and
    the policies without bound and regret."""

    table: Table
    hidden: tuple[str, ...]
    full_width: int
    unbounded: tuple[str, ...]


def comparison_table(
    runs: pd.DataFrame,
    *,
    sort_by: str,
    reference: str,
    mode: Mode = "timed",
    title: str = "",
    width: int | None = None,
    times: pd.DataFrame | None = None,
) -> Fitted:
    """One row per policy, best mean of `sort_by` first; means over seeds.

    Beside `sort_by` stands its difference to the reference policy, in % of the reference's mean, with the 95 % interval
    over paired seeds (from two seeds on); where runs has them, then the hindsight bound and the regret against it with
    its interval. A policy with a run without regret has none: it gets a `*` and stands below the others. runs has
    policy, seed and the metrics, one row per run, and the same seeds for every policy; times has the columns of
    decision_times.parquet. Times are shown in the unit of mode. Without a width (in characters), every column is shown.
    """
    if times is not None:
        runs = runs.merge(times[["policy", "seed", "p99_ms"]], on=["policy", "seed"])
    known = [Column(_in_mode(c.title, mode), c.metrics) for c in COMPARISON]
    columns = [c for c in known if c.metrics != (sort_by,) and set(c.metrics) <= set(runs.columns)]
    shown: list[Column] = []
    for column in columns:
        wider = _build(runs, sort_by, reference, mode, title, [*shown, column])
        if width is None or _width(wider) <= width:
            shown.append(column)
    hidden = tuple(column.title.replace("\n", " ") for column in columns if column not in shown)
    full_width = _width(_build(runs, sort_by, reference, mode, title, columns))
    return Fitted(_build(runs, sort_by, reference, mode, title, shown), hidden, full_width, _unbounded(runs))


def _width(table: Table) -> int:
    """Characters that the table needs to be shown in full."""
    return Console(width=1000).measure(table).maximum


def _build(
    runs: pd.DataFrame, sort_by: str, reference: str, mode: Mode, title: str, columns: Sequence[Column]
) -> Table:
    bounded = "bound" in runs
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
    table.add_column("policy", no_wrap=True)
    table.add_column(_in_mode(_short(sort_by), mode), justify="right")
    table.add_column("vs reference", justify="right", min_width=14, no_wrap=True)
    if bounded:
        table.add_column("bound", justify="right", no_wrap=True)
        table.add_column("regret", justify="right", no_wrap=True)
    for column in columns:
        table.add_column(column.title, justify="right", min_width=5 * len(column.metrics) + 2)
    by_policy = {str(name): rows.sort_values("seed") for name, rows in runs.groupby("policy", sort=False)}
    base = by_policy[reference][sort_by].tolist()
    unbounded = _unbounded(runs)
    for policy in sorted(ranked(runs, sort_by), key=unbounded.__contains__):
        rows = by_policy[policy]
        means = rows.drop(columns="policy").mean()
        change = "reference" if policy == reference else _change(rows[sort_by].tolist(), base)
        regret = _against_bound(rows, policy in unbounded) if bounded else ()
        cells = ("/".join(show_number(float(means[name]), decimals=3) for name in column.metrics) for column in columns)
        name = f"{policy} *" if policy in unbounded else policy
        table.add_row(name, show_number(float(means[sort_by])), change, *regret, *cells)
    return table


def _unbounded(runs: pd.DataFrame) -> tuple[str, ...]:
    """Policies with a run that has no regret, where runs has any."""
    return tuple(runs[runs["regret"].isna()]["policy"].unique()) if "regret" in runs else ()


def _against_bound(rows: pd.DataFrame, unbounded: bool) -> tuple[str, str]:
    """Cells of bound and regret of one policy."""
    if unbounded:
        return "-", "-"
    return show_number(float(rows["bound"].mean())), _with_interval(rows["regret"].tolist())


def _with_interval(values: Sequence[float]) -> str:
    """Mean and half width of the 95 % interval."""
    mean, half_width = mean_interval(values)
    return show_number(mean) if math.isnan(half_width) else f"{show_number(mean)} ±{show_number(half_width)}"


def _change(values: Sequence[float], base: Sequence[float]) -> str:
    """Mean paired difference in % of the base's mean, like `-12.3 % +-4.1`."""
    mean = mean_interval(base).mean
    if not mean or math.isnan(mean):
        return "-"
    difference = paired_interval(values, base)
    half = "" if math.isnan(difference.half_width) else f" ±{100 * difference.half_width / abs(mean):.1f}"
    return f"{100 * difference.mean / abs(mean):+.1f}{half} %"


def ranked(runs: pd.DataFrame, metric: str) -> list[str]:
    """Policies of `runs`, best mean of the metric first."""
    means = runs.groupby("policy", sort=False)[metric].mean()
    return [str(name) for name in means.sort_values(ascending=METRICS[metric].better != "higher", kind="stable").index]


def summary_table(metrics: Mapping[str, float], mode: Mode = "timed", title: str = "") -> Table:
    """One row per metric with its meaning, in the unit of mode."""
    table = Table(title=title or None, title_justify="left")
    for name, justify in (("metric", "left"), ("value", "right"), ("unit", "left"), ("meaning", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for name, value in metrics.items():
        metric = METRICS[name]
        table.add_row(name, show_number(value), shown_unit(metric.unit, mode), metric.doc)
    return table


def shown_unit(unit: str, mode: Mode) -> str:
    """A unit of `METRICS` as that mode has it: in the period model a second is a period."""
    return {"s": "periods", "1/s": "1/period"}.get(unit, unit) if mode == "period" else unit


def _in_mode(title: str, mode: Mode) -> str:
    """A column's title with the unit of time of mode."""
    return title.replace("(s)", f"({shown_unit('s', mode)})").replace("/s", "/period") if mode == "period" else title


def show_number(value: float, decimals: int = 6) -> str:
    """Three significant digits and at most `decimals` decimals, whole numbers in full, `-` for NaN."""
    if math.isnan(value):
        return "-"
    if value == round(value) and abs(value) < 1e9:
        return f"{value:.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{min(digits, decimals)}f}"


def _short(name: str) -> str:
    return name.removesuffix("_s").replace("_per", "/s").replace("_", " ")
