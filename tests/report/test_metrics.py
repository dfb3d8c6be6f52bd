"""Metrics by hand on a small table; misses are counted; names are frozen."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from olp_ray.report import METRICS, summarise
from olp_ray.sim.records import RequestRow, frame


def row(
    name: str, arrival: float, start: float, first: float, finish: float, tokens: int, **more: object
) -> RequestRow:
    made = RequestRow(name, arrival, 10, tokens, float(tokens), "default", "", "", "", 0)
    made.start_s, made.first_token_s, made.finish_s = start, first, finish
    made.status, made.generated_tokens = ("unfinished", 0) if math.isnan(finish) else ("finished", tokens)
    for key, value in more.items():
        setattr(made, key, value)
    return made


NAN = math.nan
ROWS = [
    row("a", 0.0, 1.0, 2.0, 6.0, 5),
    row("b", 1.0, 1.0, 3.0, 11.0, 9),
    row("c", 2.0, 5.0, 8.0, 9.0, 1),
    row("d", 3.0, 4.0, 4.5, NAN, 7),
    row("e", 4.0, NAN, NAN, NAN, 7, status="never_started"),
    row("f", 5.0, NAN, NAN, NAN, 7, status="rejected"),
]
TABLE = frame(ROWS, RequestRow)


def summary(table: pd.DataFrame = TABLE, **more: float) -> dict[str, float]:
    return summarise(table, ttft_threshold_s=2.0, e2e_threshold_s=9.0, **{"end_s": 20.0, **more})


def test_values_by_hand() -> None:
    got = summary(utilisation=0.5)
    assert [got[n] for n in ("requests", "finished", "rejected", "never_started", "unfinished")] == [6, 3, 1, 1, 1]
    assert got["ttft_mean_s"] == pytest.approx((2 + 2 + 6 + 1.5) / 4)
    assert got["e2e_mean_s"] == pytest.approx((6 + 10 + 7) / 3)
    assert got["tpot_mean_s"] == pytest.approx((4 / 4 + 8 / 8) / 2)
    assert got["queue_time_mean_s"] == pytest.approx((1 + 0 + 3 + 1) / 4)
    assert got["e2e_p50_s"] == 7
    assert got["max_wait_s"] == 16  # e waits from 4 to the end
    assert got["output_tokens_per_s"] == pytest.approx(15 / 20)
    assert got["requests_per_s"] == pytest.approx(3 / 20)
    assert got["utilisation"] == 0.5


def test_rejected_and_unfinished_are_misses() -> None:
    got = summary()
    assert got["ttft_attainment"] == pytest.approx(2 / 6)  # a and b
    assert got["e2e_attainment"] == pytest.approx(2 / 6)  # a and c
    assert got["attainment"] == pytest.approx(1 / 6)  # a
    assert got["goodput_per_s"] == pytest.approx(1 / 20)


def test_a_requests_own_thresholds_go_first() -> None:
    table = TABLE.assign(slo_ttft_s=[NAN, NAN, 6.0, NAN, NAN, NAN], slo_e2e_s=[NAN, 10.0, NAN, NAN, NAN, NAN])
    assert summary(table)["attainment"] == pytest.approx(3 / 6)


def test_fairness_is_one_for_equal_tenants_and_less_for_unequal() -> None:
    equal = frame([row(f"r{i}", 0, 0, 1, 5, 5, tenant=f"t{i}") for i in range(3)], RequestRow)
    assert summary(equal)["fairness"] == pytest.approx(1.0)
    starved = frame([row("a", 0, 0, 1, 5, 5, tenant="x"), row("b", 0, NAN, NAN, NAN, 5, tenant="y")], RequestRow)
    assert summary(starved)["fairness"] == pytest.approx(0.5)


def test_names_are_those_of_the_dictionary() -> None:
    assert list(summary()) == list(METRICS)
    assert all(np.isfinite(value) or math.isnan(value) for value in summary().values())


def test_a_table_without_requests_has_counts_and_no_numbers() -> None:
    got = summary(frame([], RequestRow))
    assert got["requests"] == 0
    assert math.isnan(got["e2e_p99_s"])
    assert math.isnan(got["attainment"])


def test_frozen_names() -> None:
    spreads = [
        f"{n}_{q}_s" for n in ("ttft", "tpot", "e2e", "queue_time") for q in ("mean", "p50", "p90", "p95", "p99")
    ]
    assert set(METRICS) == {
        *spreads, "requests", "finished", "rejected", "never_started", "unfinished", "cancelled", "max_wait_s",
        "output_tokens_per_s", "requests_per_s", "ttft_attainment", "e2e_attainment", "attainment", "goodput_per_s",
        "preemptions", "utilisation", "fairness",
    }  # fmt: skip
