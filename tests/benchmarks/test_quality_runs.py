"""Runs: what a cell's requests are, and that a run is remembered until something that matters changes."""

from __future__ import annotations

import dataclasses
import json

import pytest
from click.testing import CliRunner

from benchmarks.quality import __main__ as command
from benchmarks.quality import page, runs
from benchmarks.quality.__main__ import main
from benchmarks.quality.cells import CELLS, PeriodCell, period_workload
from benchmarks.quality.entries import SERVE, SHED, effective_variant, router_config
from benchmarks.quality.runs import Task, is_current, plan, read_runs, run_task
from olp_ray.errors import ConfigError

CELL = CELLS["slot-0.5"]


def task(tmp_path, entry="central_sjf", variant=SHED, **changes):
    return dataclasses.replace(Task(CELL, variant, entry, 1, 120, None, tmp_path), **changes)


def test_a_run_is_remembered_until_its_key_changes(tmp_path, monkeypatch):
    first = task(tmp_path)
    assert not is_current(first)
    row = run_task(first)
    assert is_current(first)
    assert not is_current(task(tmp_path, periods=121))
    assert is_current(task(tmp_path, periods=121), any_version=True)
    assert json.loads(first.path.read_text()) == row
    assert read_runs(tmp_path)["requests"].tolist() == [row["metrics"]["requests"]]
    monkeypatch.setattr(runs, "code_version", lambda entry: "another")
    assert not is_current(first)


def test_a_baseline_does_not_depend_on_the_source_of_the_online_lp():
    assert runs.code_version("central_sjf") != runs.code_version("online_lp:e2e")
    assert task(None).key != task(None, variant=SERVE).key
    assert task(None, "online_lp:e2e+no_gate").key != task(None, "online_lp:e2e").key


def test_immediate_dispatch_is_planned_once(tmp_path):
    entries = {SHED: ["round_robin", "edf"], SERVE: ["round_robin", "edf"]}
    planned = plan([CELL], entries, [1, 2], 100, None, tmp_path)
    assert [t.seed for t in planned] == [1, 1, 1, 2, 2, 2]
    assert effective_variant("round_robin", SHED) == SERVE


def test_entries():
    lp = router_config("online_lp:e2e+no_reservation", SERVE)
    assert (lp.preset, lp.online_lp.reservation, lp.rejects) == ("e2e", False, "never")
    assert router_config("edf", SHED).settings("period").rejects == "deadline"
    with pytest.raises(ConfigError, match="no_such"):
        router_config("online_lp+no_such", SERVE)


@pytest.mark.parametrize(
    "cell", [cell for cell in CELLS.values() if isinstance(cell, PeriodCell)], ids=lambda c: c.name
)
def test_workloads_follow_seed_and_rates(cell):
    frame = period_workload(cell, 400, 1, None)
    assert frame.equals(period_workload(cell, 400, 1, None))
    assert not frame.equals(period_workload(cell, 400, 2, None))
    assert frame["num_decode_tokens"].max() <= 2000
    if cell.rates[0] < cell.rates[-1]:
        assert (frame["arrived_at"] < 200).sum() < (frame["arrived_at"] >= 200).sum()


def test_the_command_runs_what_is_missing_and_prints_gates(tmp_path):
    arguments = [
        "--out", str(tmp_path), "--cells", "slot-0.5", "--seeds", "1", "--periods", "200", "--workers", "1",
        "--policies", "edf,online_lp:attainment", "--variants", "shed",
    ]  # fmt: skip
    first = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "2 runs, 0 of them done before" in first.output
    assert "attainment in overload" in first.output
    assert "Requests arrive for 200 periods and all are waited for" in first.output
    assert "1 of 15 in these runs" in first.output
    second = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "2 runs, 2 of them done before" in second.output


def test_a_quick_run_says_that_it_judges_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "QUICK_PERIODS", 60)
    arguments = ["--quick", "--out", str(tmp_path), "--workers", "1"]
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert "too short to judge by" in result.output
    assert "Requests arrive for 60 periods and" in result.output
    refused = CliRunner().invoke(main, [*arguments, "--write-page"])
    assert refused.exit_code == 2
    assert "--write-page" in refused.output


def test_runs_of_before_their_length_was_recorded_do_not_claim_one(tmp_path):
    row = run_task(task(tmp_path))
    del row["periods"]
    task(tmp_path).path.write_text(json.dumps(row))
    assert "Requests arrive for `--periods` periods and" in page.report(tmp_path)
