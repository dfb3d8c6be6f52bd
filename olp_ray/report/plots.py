"""Figures as PNG files, drawn from parquet files only, so that any can be drawn again without a run.

mode, where it is taken, says what a second of the tables is called: the period model's is a period.

matplotlib is imported when a figure is drawn, not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from olp_ray.config import Mode
from olp_ray.report.intervals import mean_interval
from olp_ray.report.metrics import METRICS
from olp_ray.report.tables import ranked, shown_unit

USUAL = ("ttft_p95_s", "e2e_mean_s", "attainment")  # metrics that a comparison draws
HALF_DECADE, MANY_DECADES = 0.5, 3.5


def plot_latency_cdfs(
    runs: Mapping[str, str | Path], path: str | Path, mode: Mode = "timed", title: str | None = None
) -> Path:
    """CDFs of TTFT and E2E over all requests; label -> requests.parquet. It ends below 1 if some never got there.

    The title says of which seeds they are.
    """
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 4), layout="constrained")
    for label, file in runs.items():
        table = pd.read_parquet(file)
        for axis, column in zip(axes, ("first_token_s", "finish_s"), strict=True):
            values = np.sort((table[column] - table["arrival_s"]).dropna().to_numpy())
            axis.step(values, np.arange(1, len(values) + 1) / max(1, len(table)), where="post", label=label)
    for axis, name in zip(axes, ("time to first token", "end-to-end latency"), strict=True):
        scale_latency(axis)
        axis.set(xlabel=f"{name} ({shown_unit('s', mode)})", ylabel="share of all requests", ylim=(0, 1))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    if title is not None:
        figure.suptitle(title, fontsize="medium")
    return _save(figure, path)


def scale_latency(axis: Any) -> None:
    """A logarithmic x axis with plain numbers at 1, 2 and 5 of each decade, at 1 alone where there are many decades.

    It stays linear where the lines span less than half a decade, and where nothing is positive: in period mode a TTFT
    is often 0.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    found = np.concatenate([line.get_xdata() for line in axis.lines] or [np.empty(0)])
    positive = found[found > 0]
    decades = float(np.log10(positive.max() / positive.min())) if len(positive) else 0.0
    if decades < HALF_DECADE:
        return
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades <= MANY_DECADES else (1.0,)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def plot_timeline(folder: str | Path, path: str | Path, mode: Mode = "timed") -> Path:
    """Router queue, batch and KV use of every device, and prices where there are any, over time.

    Reads timeline.parquet, and prices.parquet if it is there.
    """
    folder = Path(folder)
    timeline = pd.read_parquet(folder / "timeline.parquet")
    prices_file = folder / "prices.parquet"
    prices = pd.read_parquet(prices_file) if prices_file.exists() else None
    pyplot = _pyplot()
    rows = 3 if prices is None else 5
    figure, axes = pyplot.subplots(rows, 1, figsize=(10, 2 * rows), sharex=True, layout="constrained")
    queue = timeline.groupby("time_s")["router_waiting"].first()
    axes[0].plot(queue.index, queue.to_numpy(), color="black")
    axes[0].set_ylabel("waiting at router")
    _from_zero(axes[0], "nothing waited")
    _per_device(axes[1], timeline, "running", "in batch")
    _per_device(axes[2], timeline, "kv_tokens", "KV tokens")
    if prices is not None:
        _per_device(axes[3], prices, "slot_price", "slot price")
        _per_device(axes[4], prices, "kv_price", "KV price")
    axes[1].legend(loc="upper right", fontsize="small", ncols=4)
    axes[-1].set_xlabel(f"time ({shown_unit('s', mode)})")
    return _save(figure, path)


def plot_comparison(
    results: str | Path,
    path: str | Path,
    metrics: Sequence[str] = USUAL,
    mode: Mode = "timed",
    bounded: str | None = None,
) -> Path:
    """Bars per policy with 95 % intervals and a dot per seed; results is a parquet file with policy, seed and metrics.

    The axis follows the seeds: an interval over few of them that reaches beyond is cut, and an arrow says so. A policy
    that did not serve every request has a star. bounded is the metric that the column `bound` is of: it gets a line.
    """
    runs = pd.read_parquet(results)
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(1, len(metrics), figsize=(5 * len(metrics), 4), layout="constrained", squeeze=False)
    notes: dict[str, None] = {}
    for axis, metric in zip(axes[0], metrics, strict=True):
        notes |= dict.fromkeys(_policy_bars(axis, runs, metric))
        if metric == bounded:
            notes |= dict.fromkeys(_bound_line(axis, float(runs["bound"].mean())))
        unit = shown_unit(METRICS[metric].unit, mode)
        axis.set_xlabel(f"{METRICS[metric].doc} ({unit})" if unit else METRICS[metric].doc)
        better = "higher is better" if METRICS[metric].better == "higher" else "lower is better"
        axis.set_title(f"{metric}: {better}", fontsize="medium")
    figure.supxlabel("\n".join(notes), fontsize="small")
    return _save(figure, path)


def _policy_bars(axis: Any, runs: pd.DataFrame, metric: str) -> list[str]:
    """Draw the bars of one metric; returns what the caption has to say."""
    policies = ranked(runs, metric)
    partial = set(runs[runs["finished"] < runs["requests"]]["policy"])
    bars = [mean_interval(runs[runs["policy"] == policy][metric].tolist()) for policy in policies]
    names = [f"{policy} *" if policy in partial else policy for policy in policies]
    halves = np.nan_to_num([bar.half_width for bar in bars])
    axis.barh(names, [bar.mean for bar in bars], xerr=halves, color="tab:blue", alpha=0.8)
    largest = runs[metric].max()
    share = METRICS[metric].better == "higher" and largest <= 1
    limit = 1.0 if share else 1.1 * largest if largest > 0 else 1.0
    axis.set_xlim(0, limit)
    cut = False
    for row, (policy, bar, half) in enumerate(zip(policies, bars, halves, strict=True)):
        seeds = runs[runs["policy"] == policy][metric]
        axis.plot(seeds, [row] * len(seeds), ".", color="black", markersize=4)
        for beyond, at, arrow in ((bar.mean - half < 0, 0.0, "<"), (bar.mean + half > limit, limit, ">")):
            if beyond:
                axis.plot(at, row, arrow, color="black", markersize=7, clip_on=False)
                cut = True
    axis.invert_yaxis()
    star = "* did not serve every request: latencies are of those that it served"
    arrow = "An arrow at the edge: the interval over so few seeds goes on beyond it"
    return [note for note, holds in ((star, partial), (arrow, cut)) if holds]


def _bound_line(axis: Any, bound: float) -> list[str]:
    """Draw the mean of the bound over seeds, where the axis goes or farther; returns what the caption has to say."""
    axis.axvline(bound, color="tab:red", linestyle="--")
    axis.set_xlim(right=max(axis.get_xlim()[1], 1.05 * bound if bound > 1 else bound))
    return ["Dashed: the hindsight bound, mean over seeds, which no schedule of all requests passes"]


def _per_device(axis: Any, table: pd.DataFrame, column: str, label: str) -> None:
    for device, rows in table.groupby("device_id"):
        axis.plot(rows["time_s"], rows[column], label=device, linewidth=0.8)
    axis.set_ylabel(label)
    _from_zero(axis, "always 0")


def _from_zero(axis: Any, where_empty: str) -> None:
    """Let y begin at 0; where nothing is above it, let y end at 1 and say so."""
    if any((line.get_ydata() > 0).any() for line in axis.lines):
        axis.set_ylim(bottom=0)
        return
    axis.set_ylim(0, 1)
    axis.text(0.5, 0.5, where_empty, ha="center", va="center", color="gray", transform=axis.transAxes)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    _pyplot().close(figure)
    return path
