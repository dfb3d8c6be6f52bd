"""Tables say every number once, best policy first."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from rich.console import Console

from olp_ray.report import METRICS, comparison_table, ranked, summary_table
from olp_ray.report.tables import show_number

RUNS = pd.DataFrame(
    [
        {
            "policy": policy,
            "seed": seed,
            **dict.fromkeys(METRICS, 1.0),
            "e2e_mean_s": e2e + seed,
            "attainment": e2e / 10,
        }
        for policy, e2e in (("slow", 8.0), ("fast", 2.0), ("even", 5.0))
        for seed in (0, 1)
    ]
)


def text_of(table: object) -> str:
    console = Console(width=240, record=True, file=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_best_policy_is_first_whichever_way_is_better() -> None:
    assert ranked(RUNS, "e2e_mean_s") == ["fast", "even", "slow"]
    assert ranked(RUNS, "attainment") == ["slow", "even", "fast"]


def test_summary_names_every_metric() -> None:
    text = text_of(summary_table(dict.fromkeys(METRICS, 0.25)))
    assert all(name in text for name in METRICS)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (12.0, "12"),
        (12.345, "12.3"),
        (0.012345, "0.0123"),
        (1234.5, "1234"),
        (math.nan, "-"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers(value: float, shown: str) -> None:
    assert show_number(value) == shown


def test_periods_are_not_called_seconds() -> None:
    text = text_of(summary_table({"e2e_mean_s": 3.0, "goodput_per_s": 0.5}, mode="period"))
    assert ("periods" in text, "1/period" in text, "1/s" in text) == (True, True, False)
    titles = [
        str(column.header)
        for metric in ("e2e_mean_s", "goodput_per_s")
        for column in comparison_table(RUNS, sort_by=metric, reference="fast", mode="period").table.columns
    ]
    assert "goodput/period" in titles
    assert "E2E\np50/p95/p99 (periods)" in titles
    assert not [title for title in titles if "(s)" in title or "/s" in title]
