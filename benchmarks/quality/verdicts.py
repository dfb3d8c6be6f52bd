"""Comparisons and gates over finished runs. The best baseline is picked per cell and metric, in its favour.

A baseline is a candidate when it has as many seeds as any other in its cell. Those that were screened out with fewer
are still looked at: one that beats the pick on its own seeds is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.quality.cells import CELLS, KV_BOUND, SLOT_BOUND, PeriodCell
from benchmarks.quality.entries import BASELINES, CLAIMS, IMMEDIATE, SERVE, SHED, Claim
from olp_ray.report.metrics import METRICS

SHARES = ("attainment", "ttft_attainment", "e2e_attainment")
OVERLOAD_POINTS = 0.02
E2E_GAIN = 0.08
TOLERANCE = 0.01
LIGHT_RATE = 0.45


def is_better_higher(metric: str) -> bool:
    return metric not in METRICS or METRICS[metric].better == "higher"


def runs_of(runs: pd.DataFrame, cell: str, variant: str) -> pd.DataFrame:
    """A cell's rows of a variant; immediate dispatch sheds nothing, so its runs stand in both."""
    here = runs[runs["cell"] == cell]
    return here[(here["variant"] == variant) | here["entry"].isin(IMMEDIATE)]


def by_seed(rows: pd.DataFrame, entry: str, metric: str) -> pd.Series:
    chosen = rows[rows["entry"] == entry]
    return chosen.set_index("seed")[metric].sort_index()


@dataclass(frozen=True, slots=True)
class Verdict:
    """gain is positive where ours is better: points for shares, else a share of the baseline's mean (at least 1)."""

    cell: str
    claim: Claim
    baseline: str
    ours: str
    baseline_mean: float
    ours_mean: float
    gain: float
    gain_se: float
    seeds: int
    ahead_elsewhere: tuple[str, ...]


def best_baseline(rows: pd.DataFrame, metric: str, names: Sequence[str] = BASELINES) -> tuple[str, tuple[str, ...]]:
    """The pick among `names`, and screened-out baselines that beat it on their own seeds."""
    sign = 1.0 if is_better_higher(metric) else -1.0
    found = {name: by_seed(rows, name, metric) for name in names}
    found = {name: values for name, values in found.items() if len(values)}
    if not found:
        return "", ()
    most = max(len(values) for values in found.values())
    full = {name: values for name, values in found.items() if len(values) == most}
    pick = max(full, key=lambda name: sign * full[name].mean())
    ahead = [
        name
        for name, values in found.items()
        if name not in full and sign * (values - full[pick].reindex(values.index)).mean() > 0
    ]
    return pick, tuple(ahead)


def verdict(runs: pd.DataFrame, cell: str, claim: Claim, names: Sequence[str] = BASELINES) -> Verdict | None:
    """Ours against the best of `names` on the seeds that both have; None where either was not run."""
    rows = runs_of(runs, cell, claim.variant)
    if rows.empty:
        return None
    entry = f"online_lp:{claim.preset}"
    pick, ahead = best_baseline(rows, claim.metric, names)
    ours = by_seed(rows, entry, claim.metric)
    if not pick or ours.empty:
        return None
    base = by_seed(rows, pick, claim.metric)
    seeds = ours.index.intersection(base.index)
    if seeds.empty:
        return None
    ours, base = ours[seeds], base[seeds]
    difference = (ours - base) * (1.0 if is_better_higher(claim.metric) else -1.0)
    scale = 1.0 if claim.metric in SHARES else max(abs(float(base.mean())), 1.0)
    error = float(difference.std(ddof=1)) / math.sqrt(len(seeds)) if len(seeds) > 1 else math.nan
    return Verdict(
        cell, claim, pick, entry, float(base.mean()), float(ours.mean()),
        float(difference.mean()) / scale, error / scale, len(seeds), ahead,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class GateLine:
    """One number of a gate; passed is None when it was not run."""

    gate: str
    cell: str
    metric: str
    passed: bool | None
    numbers: str


def gates(runs: pd.DataFrame) -> list[GateLine]:
    """Every gate on every cell that it speaks of."""
    return [*_overload(runs), *_mean_e2e(runs), *_nowhere_worse(runs)]


def _overload(runs: pd.DataFrame) -> list[GateLine]:
    lines = []
    claim = next(c for c in CLAIMS if (c.metric, c.variant) == ("attainment", SHED))
    for cell in ("slot-0.5", "slot-0.6", "kv-0.5", "kv-0.6"):
        gate = "attainment in overload, shed: +2 points, p99 wait within X"
        found = verdict(runs, cell, claim)
        if found is None:
            lines.append(GateLine(gate, cell, claim.metric, None, "not run"))
            continue
        rows = runs_of(runs, cell, SHED)
        mine = rows[rows["entry"] == found.ours]
        wait, limit = mine["queue_time_p99_s"].max(), mine["max_wait_limit_s"].max()
        passed = found.gain >= OVERLOAD_POINTS and wait <= limit
        lines.append(
            GateLine(
                gate, cell, claim.metric, bool(passed), f"{show_gain(found)}; p99 wait {wait:.0f} of X={limit:.0f}"
            )
        )
    return lines


def _mean_e2e(runs: pd.DataFrame) -> list[GateLine]:
    claim = next(c for c in CLAIMS if c.metric == "e2e_mean_s")
    found = verdict(runs, "kv-0.5", claim)
    gate = "mean E2E, KV-bound, errors of 20 %, all served: 8 % better"
    if found is None:
        return [GateLine(gate, "kv-0.5", claim.metric, None, "not run")]
    numbers = show_gain(found)
    plain = verdict(runs, "kv-0.5", claim, [name for name in BASELINES if name != "sjf_reservation"])
    if plain is not None and plain.baseline != found.baseline:
        numbers += f"; against the best without our reservation {show_gain(plain)}"
    return [GateLine(gate, "kv-0.5", claim.metric, found.gain >= E2E_GAIN, numbers)]


def _nowhere_worse(runs: pd.DataFrame) -> list[GateLine]:
    lines = []
    for name, cell in CELLS.items():
        if not isinstance(cell, PeriodCell):
            continue
        light = cell.fleet in (SLOT_BOUND, KV_BOUND) and max(cell.rates) <= LIGHT_RATE
        if light:
            gate = f"rate <= {LIGHT_RATE}: within 1 % on every metric"
        elif name.startswith("hetero") or cell.predictor == "mean":
            gate = "mean-only and heterogeneous: within 1 %"
        else:
            continue
        for claim in CLAIMS:
            found = verdict(runs, name, claim)
            if found is None:
                lines.append(GateLine(gate, name, f"{claim.metric} ({claim.variant})", None, "not run"))
                continue
            passed = found.gain >= -TOLERANCE
            lines.append(GateLine(gate, name, f"{claim.metric} ({claim.variant})", passed, show_gain(found)))
    return lines


def show_gain(found: Verdict) -> str:
    """`+3.1 points ± 0.2 (on_time_sjf .913 → .944)`."""
    unit = "points" if found.claim.metric in SHARES else "%"
    error = "" if np.isnan(found.gain_se) else f" ± {100 * found.gain_se:.1f}"
    values = f"{show(found.claim.metric, found.baseline_mean)} → {show(found.claim.metric, found.ours_mean)}"
    return f"{100 * found.gain:+.1f}{error} {unit} ({found.baseline} {values}, {found.seeds} seeds)"


def show(metric: str, value: float) -> str:
    if np.isnan(value):
        return "-"
    return f"{value:.3f}" if metric in SHARES or metric == "finished_in_time" else f"{value:.1f}"


def ablation_claims() -> tuple[Claim, Claim]:
    """The two claims whose ablations are run."""
    return (
        next(c for c in CLAIMS if (c.metric, c.variant) == ("attainment", SHED)),
        next(c for c in CLAIMS if (c.metric, c.variant) == ("e2e_mean_s", SERVE)),
    )
