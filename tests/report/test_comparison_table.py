"""The table that `compare` prints, on numbers worked out by hand."""

from __future__ import annotations

import io
import math

import pandas as pd
from rich.console import Console

from olp_ray.report import METRICS, comparison_table
from olp_ray.report.tables import Fitted

# two seeds; b is 10 % and 20 % below a: differences -1 and -4 on a mean of 15
E2E = {"a": [10.0, 20.0], "b": [9.0, 16.0], "c": [30.0, 30.0]}


def runs(seeds: int) -> pd.DataFrame:
    zero = dict.fromkeys(METRICS, 0.0)
    rows = [
        {"policy": p, "seed": s, **zero, "e2e_mean_s": v[s], "ttft_p50_s": 0.0123, "attainment": v[s] / 40}
        for s in reversed(range(seeds))  # order of rows must not matter
        for p, v in E2E.items()
    ]
    return pd.DataFrame(rows)


def lines(seeds: int, **options: str) -> list[str]:
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(comparison_table(runs(seeds), **{"sort_by": "e2e_mean_s", "reference": "a", **options}).table)
    return [line.strip() for line in console.export_text().splitlines() if line.strip()]


def test_best_first_and_the_reference_is_named() -> None:
    body = lines(2)[-3:]
    assert [line.split()[0] for line in body] == ["b", "a", "c"]
    assert "reference" in body[1]


def test_paired_interval_in_percent_of_the_reference() -> None:
    # mean -2.5 of 15; t(1 df, 97.5 %) = 12.706; sd 2.1213 / sqrt 2 = 1.5 -> 19.06 of 15
    assert "-16.7 ±127.1 %" in lines(2)[-3]


def test_one_seed_has_no_interval() -> None:
    assert "-10.0 %" in lines(1)[-3]
    assert "±" not in "".join(lines(1))


def test_sorted_by_what_was_asked_higher_first() -> None:
    body = lines(2, sort_by="attainment")[-3:]
    assert [line.split()[0] for line in body] == ["c", "a", "b"]


def test_a_reference_of_zero_gives_no_percentage() -> None:
    assert "%" not in "".join(lines(2, sort_by="rejected")[-3:])


def test_one_line_per_policy_in_its_natural_width() -> None:
    width = Console(width=1000).measure(comparison_table(runs(2), sort_by="e2e_mean_s", reference="a").table).maximum
    assert width <= 140
    assert "rejected" in " ".join(lines(2))


def fitted(width: int | None, **changes: object) -> Fitted:
    table = runs(2).assign(**changes)
    return comparison_table(table, sort_by="e2e_mean_s", reference="a", width=width)


def test_columns_go_where_there_is_no_room_and_are_named() -> None:
    narrow, wide = fitted(80), fitted(None)
    assert not wide.hidden
    assert Console(width=1000).measure(narrow.table).maximum <= 80
    shown = [str(column.header).replace("\n", " ") for column in narrow.table.columns]
    everything = [str(column.header).replace("\n", " ") for column in wide.table.columns]
    assert sorted([*shown, *narrow.hidden]) == sorted(everything)
    assert shown[:4] == ["policy", "e2e mean", "vs reference", "TTFT p50/p95/p99 (s)"]
    assert len(fitted(120).hidden) < len(narrow.hidden)


def test_bound_and_regret_stand_beside_the_metric() -> None:
    # regrets 1 and 2: mean 1.5, t = 12.706, sd .7071 / sqrt 2 = .5
    table = fitted(None, bound=8.0, regret=lambda frame: frame["seed"] + 1.0).table
    assert [str(column.header) for column in table.columns][3:5] == ["bound", "regret"]
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(table)
    assert "1.50 ±6.35" in console.export_text()


def test_what_did_not_serve_all_has_no_bound_and_stands_below_what_did() -> None:
    """b is best by its mean, and one run of it has no regret."""
    found = fitted(None, bound=8.0, regret=lambda frame: 1.0 + frame["seed"].where(frame["policy"] != "b", math.nan))
    names, _, _, bounds, regrets = (list(column.cells) for column in found.table.columns[:5])
    assert (names, found.unbounded) == (["a", "c", "b *"], ("b",))
    assert bounds == ["8", "8", "-"]
    assert regrets == ["1.50 ±6.35", "1.50 ±6.35", "-"]
    assert fitted(None).unbounded == ()


def test_decision_times_are_the_last_column() -> None:
    times = runs(2)[["policy", "seed"]].assign(p99_ms=2.5)
    table = comparison_table(runs(2), sort_by="e2e_mean_s", reference="a", times=times).table
    assert list(table.columns[-1].cells) == ["2.50"] * 3
