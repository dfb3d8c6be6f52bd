"""Best baseline, paired gains and gates, on made-up runs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from benchmarks.quality.entries import Claim
from benchmarks.quality.verdicts import best_baseline, gates, runs_of, verdict


def runs(*rows, cell="kv-0.5", variant="serve", **more):
    frame = pd.DataFrame(rows, columns=["entry", "seed", "e2e_mean_s", "attainment"])
    others = dict.fromkeys(("ttft_mean_s", "ttft_p95_s", "ttft_p99_s", "tokens_in_time_per_s"), 1.0)
    health = {"queue_time_p99_s": 10.0, "max_wait_limit_s": 2000.0, **others}
    return frame.assign(cell=cell, variant=variant, **{**health, **more})


E2E = Claim("e2e_mean_s", "serve", "e2e")


def test_the_best_baseline_is_picked_for_each_metric_and_the_difference_is_paired():
    frame = runs(
        ("central_fifo", 1, 200.0, 0.9),
        ("central_fifo", 2, 220.0, 0.9),
        ("central_sjf", 1, 100.0, 0.8),
        ("central_sjf", 2, 140.0, 0.8),
        ("online_lp:e2e", 1, 90.0, 0.7),
        ("online_lp:e2e", 2, 124.0, 0.7),
    )
    found = verdict(frame, "kv-0.5", E2E)
    assert (found.baseline, found.seeds) == ("central_sjf", 2)
    assert found.gain == pytest.approx(13 / 120)
    assert found.gain_se == pytest.approx(3 / 120)
    points = verdict(frame, "kv-0.5", Claim("attainment", "serve", "e2e"))
    assert (points.baseline, points.gain) == ("central_fifo", pytest.approx(-0.2))


def test_a_screened_out_baseline_that_is_ahead_on_its_seeds_is_named():
    frame = runs(
        ("central_fifo", 1, 200.0, 0.9),
        ("central_fifo", 2, 100.0, 0.9),
        ("hrrn", 1, 190.0, 0.9),
        ("edf", 1, 300.0, 0.9),
    )
    assert best_baseline(frame, "e2e_mean_s") == ("central_fifo", ("hrrn",))


def test_immediate_dispatch_stands_in_both_variants():
    frame = pd.concat([runs(("round_robin", 1, 1.0, 0.5)), runs(("central_fifo", 1, 1.0, 0.5), variant="shed")])
    assert runs_of(frame, "kv-0.5", "shed")["entry"].tolist() == ["round_robin", "central_fifo"]
    assert runs_of(frame, "kv-0.5", "serve")["entry"].tolist() == ["round_robin"]


@pytest.mark.parametrize(("gain", "p99_s", "passed"), [(0.03, 10.0, True), (0.01, 10.0, False), (0.03, 3000.0, False)])
def test_attainment_in_overload_needs_two_points_and_bounded_waits(gain, p99_s, passed):
    frame = runs(
        ("on_time_sjf", 1, 1.0, 0.9),
        ("online_lp:attainment", 1, 1.0, 0.9 + gain),
        cell="slot-0.5",
        variant="shed",
        queue_time_p99_s=p99_s,
    )
    line = next(line for line in gates(frame) if line.cell == "slot-0.5" and line.metric == "attainment")
    assert line.passed is passed


def test_gates_that_were_not_run_are_neither_passed_nor_failed():
    empty = runs().astype({"seed": np.int64})
    assert {line.passed for line in gates(empty)} == {None}


def test_the_gate_on_mean_e2e_also_tells_the_gain_without_reservation():
    frame = runs(
        ("sjf_reservation", 1, 100.0, 0.9),
        ("central_sjf", 1, 200.0, 0.9),
        ("online_lp:e2e", 1, 99.0, 0.9),
    )
    line = next(line for line in gates(frame) if line.metric == "e2e_mean_s")
    assert line.passed is False
    assert "+1.0 % (sjf_reservation" in line.numbers
    assert "+50.5 % (central_sjf" in line.numbers
