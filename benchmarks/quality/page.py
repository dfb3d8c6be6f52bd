"""Tables and gates of the matrix as text, and their section of docs/results.md. Nothing is computed from requests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from benchmarks.quality.cells import CELLS, TimedCell
from benchmarks.quality.entries import (
    ABLATIONS,
    ALWAYS,
    BASELINES,
    CENTRAL,
    CLAIMS,
    IMMEDIATE,
    VARIANTS,
    Claim,
    ablations,
    ours,
)
from benchmarks.quality.runs import read_runs
from benchmarks.quality.verdicts import (
    GateLine,
    ablation_claims,
    best_baseline,
    by_seed,
    gates,
    runs_of,
    show,
    show_gain,
    verdict,
)
from benchmarks.results_page import records_table, replace_section

HEALTH = (("ttft_p99_s", "p99 TTFT"), ("max_wait_s", "max wait"), ("never_started", "never started"),
          ("rejected", "rejected"))  # fmt: skip
BALANCED = ("e2e_mean_s", "ttft_mean_s", "ttft_p95_s", "ttft_p99_s", "attainment", "tokens_in_time_per_s")

INTRO = """## Quality: policies against each other

`python -m benchmarks.quality --traces DIR --out DIR --write-page` runs what is missing and writes this section.
{lengths} and all are waited for; a rejected request is a miss.
"shed": every policy with a central queue rejects by one rule, `rejects: deadline` with joint deadlines (what can not
meet both thresholds any more; docs/policies.md), which lifts baselines as much as ours. "serve": `rejects: never`. The
best baseline is picked per row, in its favour, from those tried there ({tried}); each metric of ours has one preset,
the same in every cell. Times are in periods in period cells and in seconds in timed ones. Gains are paired over seeds,
± one standard error; positive is
better. Health columns are means over seeds. Tables hold what has been run so far: every row says on how many seeds; a
baseline that was tried on fewer seeds than the others of its cell and is ahead there is named under "also ahead"."""


def report(out: Path) -> str:
    """Gates, then every table."""
    runs = read_runs(out)
    if runs.empty:
        return "no runs"
    parts = [
        _intro(runs),
        "### Gates",
        records_table([_gate_row(line) for line in gates(runs) if line.passed is not None]),
    ]
    parts.append(_not_run(gates(runs)))
    parts.append(_room_note())
    parts += ["### Each metric's preset against the best baseline", records_table(_claim_rows(runs))]
    parts += [
        f"### The default preset, `{ALWAYS}`: every metric",
        _balanced_note(),
        records_table(_balanced_rows(runs)),
    ]
    parts += ["### Ablations", _ablation_note(), records_table(_ablation_rows(runs))]
    parts.append(_provenance(runs))
    return "\n\n".join(part for part in parts if part) + "\n"


def write(out: Path) -> None:
    replace_section("quality", report(out))


def _intro(runs: pd.DataFrame) -> str:
    tried = runs.loc[runs["entry"].isin(BASELINES), "entry"].nunique()
    return INTRO.format(lengths=_lengths(runs), tried=f"{tried} of {len(BASELINES)} in these runs")


def _lengths(runs: pd.DataFrame) -> str:
    """How long requests arrive in the runs at hand; runs of before it was recorded do not say."""
    known = sorted(runs["periods"].dropna().unique()) if "periods" in runs else []
    periods = " or ".join(f"{value:,.0f}" for value in known) or "`--periods`"
    timed = {cell.requests for name in runs["cell"].unique() if isinstance(cell := CELLS.get(name), TimedCell)}
    requests = " or ".join(f"{count:,}" for count in sorted(timed))
    return f"Requests arrive for {periods} periods" + (f" (timed cells: {requests} requests)" if requests else "")


def _gate_row(line: GateLine) -> dict[str, str]:
    return {
        "gate": line.gate,
        "cell": line.cell,
        "metric": line.metric,
        "": "pass" if line.passed else "**fail**",
        "numbers": line.numbers,
    }


def _not_run(lines: Iterable[GateLine]) -> str:
    cells = sorted({line.cell for line in lines if line.passed is None})
    return f"Gates with cells or presets not run yet: {', '.join(cells)}." if cells else ""


def _claim_rows(runs: pd.DataFrame) -> list[dict[str, str]]:
    rows = []
    for cell in CELLS:
        for claim in CLAIMS:
            found = verdict(runs, cell, claim)
            if found is None:
                continue
            here = runs_of(runs, cell, claim.variant)
            rows.append(
                {
                    "cell": cell,
                    "metric": f"{claim.metric} ({claim.variant})",
                    "preset": claim.preset,
                    "gain": show_gain(found),
                    **{title: _pair(here, found.baseline, found.ours, name) for name, title in HEALTH},
                    "tried": str(here["entry"].isin(BASELINES).groupby(here["entry"]).any().sum()),
                    "also ahead": ", ".join(found.ahead_elsewhere) or "-",
                }
            )
    return rows


def _pair(rows: pd.DataFrame, baseline: str, ours: str, metric: str) -> str:
    return " → ".join(show(metric, float(by_seed(rows, name, metric).mean())) for name in (baseline, ours))


def _room_note() -> str:
    return (
        "How far any policy could go in these cells, with and without rejection, is in the section on hindsight bounds."
    )


def _balanced_note() -> str:
    return (
        "Each value is followed by the gain over the best baseline for that metric alone, which is another one in each."
    )


def _balanced_rows(runs: pd.DataFrame) -> list[dict[str, str]]:
    rows = []
    for cell in CELLS:
        for variant in VARIANTS:
            here = runs_of(runs, cell, variant)
            mine = here[here["entry"] == f"online_lp:{ALWAYS}"]
            if mine.empty:
                continue
            row = {"cell": cell, "variant": variant, "seeds": str(len(mine))}
            for metric in BALANCED:
                row[metric] = show(metric, float(mine[metric].mean())) + _gain(runs, cell, metric, variant)
            rows.append(row | {title: show(name, float(mine[name].mean())) for name, title in HEALTH[1:]})
    return rows


def _gain(runs: pd.DataFrame, cell: str, metric: str, variant: str) -> str:
    found = verdict(runs, cell, Claim(metric, variant, ALWAYS))
    return "" if found is None else f" ({100 * found.gain:+.1f})"


def _ablation_note() -> str:
    return (
        "`value` is the mean over all seeds of the row's own policy; `minus full` is paired, over the seeds that it "
        "shares with the full policy (their number is under `seeds`)."
    )


def _ablation_rows(runs: pd.DataFrame) -> list[dict[str, str]]:
    rows = []
    for claim in ablation_claims():
        full = f"online_lp:{claim.preset}"
        for cell in CELLS:
            here = runs_of(runs, cell, claim.variant)
            if here.empty:
                continue
            entries = [
                full,
                *(f"{full}+{name}" for name in ABLATIONS),
                "sjf_reservation",
                best_baseline(here, claim.metric)[0],
            ]
            found = {entry: by_seed(here, entry, claim.metric) for entry in dict.fromkeys(entries)}
            if any(found.get(f"{full}+{name}", pd.Series()).empty for name in ABLATIONS) or found[full].empty:
                continue
            for entry, values in found.items():
                both = values.index.intersection(found[full].index)
                rows.append(
                    {
                        "cell": cell,
                        "metric": f"{claim.metric} ({claim.variant})",
                        "policy": entry,
                        "value": show(claim.metric, float(values.mean())),
                        "minus full": show(claim.metric, float((values[both] - found[full][both]).mean())),
                        "seeds": str(len(both)),
                        **{title: show(name, float(by_seed(here, entry, name).mean())) for name, title in HEALTH},
                    }
                )
    return rows


def _provenance(runs: pd.DataFrame) -> str:
    of_lp = runs["entry"].str.startswith("online_lp")
    versions = [", ".join(sorted(runs[part]["code"].unique())) for part in (of_lp, ~of_lp)]
    whole = 5 * len(CELLS) * (len(IMMEDIATE) + sum(len(CENTRAL) + len(ours(v)) + len(ablations(v)) for v in VARIANTS))
    return (
        f"{len(runs)} runs, {runs['cpu_s'].sum() / 3600:.1f} CPU hours; the whole matrix is {whole} runs, at this mean "
        f"{whole * runs['cpu_s'].mean() / 3600:.0f} CPU hours. Source digests: online_lp {versions[0]}; "
        f"baselines {versions[1]}."
    )
