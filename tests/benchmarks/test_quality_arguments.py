"""The command line of the benchmarks: what is refused says what is allowed, and help shows an example and names."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks import exactness, predictors, tick
from benchmarks.quality import bounds
from benchmarks.quality.__main__ import main
from benchmarks.quality.arguments import read_cells, read_entries, read_seeds, read_variants
from benchmarks.quality.cells import CELLS, CONVERSATIONS, PeriodCell
from benchmarks.quality.entries import BASELINES

TIMED = [name for name, cell in CELLS.items() if not isinstance(cell, PeriodCell)]


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--cells", "nowhere", "slot-0.5"),
        ("--policies", "fastest", "central_sjf"),
        ("--policies", "baseline", "ours, baselines, ablations"),
        ("--variants", "shd", "did you mean 'shed'? (valid: serve, shed)"),
        ("--seeds", "a", "whole numbers >= 0 like 101,102"),
        ("--seeds", "-1", "whole numbers >= 0"),
        ("--periods", "0", "x>=1"),
    ],
)
def test_what_is_unknown_is_refused_with_what_is_allowed(tmp_path, flag, value, allowed):
    result = CliRunner().invoke(main, ["--out", str(tmp_path), flag, value])
    assert result.exit_code == 2
    assert value in result.output
    assert allowed in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "arguments", "allowed"),
    [
        (bounds.main, ["--cells", "nowhere"], "slot-0.5"),
        (bounds.main, ["--cells", "conv-8b-0.9"], "--traces"),
        (bounds.main, ["--seed", "-1"], "x>=0"),
        (predictors.main, ["--traces", ".", "--seeds", "a"], "whole numbers >= 0"),
        (exactness.main, ["--every", "0"], "x>=1"),
        (exactness.main, ["--periods", "0"], "x>=1"),
        (exactness.main, ["--quick", "--periods", "50"], "no update to measure"),
    ],
)
def test_other_commands_refuse_likewise(command, arguments, allowed):
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert allowed in result.output


def test_timed_cells_need_traces(tmp_path, capsys):
    result = CliRunner().invoke(main, ["--out", str(tmp_path), "--cells", TIMED[0]])
    assert result.exit_code == 2
    assert "--traces DIR" in result.output
    assert [cell.name for cell in read_cells("*", None)] == [name for name in CELLS if name not in TIMED]
    assert f"{len(TIMED)} timed cells are left out" in capsys.readouterr().err


@pytest.mark.parametrize("command", [main, bounds.main, exactness.main])
def test_a_folder_without_the_traces_is_refused(tmp_path, command):
    result = CliRunner().invoke(command, ["--traces", str(tmp_path)])
    assert result.exit_code == 2
    assert f"{CONVERSATIONS}, which is not there" in " ".join(result.output.split())


def test_bounds_are_of_period_cells(tmp_path):
    (tmp_path / CONVERSATIONS).write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n")
    result = CliRunner().invoke(bounds.main, ["--traces", str(tmp_path), "--cells", "conv-8b-0.9"])
    assert result.exit_code == 2
    assert "expected period cells (slot-0.5" in result.output


def test_lists_are_read_in_order_and_once():
    assert read_seeds("3, 1,3") == [3, 1]
    assert read_variants("serve,shed,serve") == ["serve", "shed"]
    assert read_entries("baselines,edf", "shed") == list(BASELINES)
    assert [cell.name for cell in read_cells("kv-0.5,slot-0.5", None)] == ["slot-0.5", "kv-0.5"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (main, ["python -m benchmarks.quality --quick", "nothing is rejected", *CELLS, *BASELINES, "online_lp:e2e"]),
        (bounds.main, ["python -m benchmarks.quality.bounds --cells"]),
        (exactness.main, ["python -m benchmarks.exactness --quick"]),
        (tick.main, ["python -m benchmarks.tick --quick"]),
    ],
)
def test_help_has_an_example_and_names(command, words):
    shown = " ".join(CliRunner().invoke(command, ["--help"]).output.split())
    for word in words:
        assert word in shown.replace("- ", "-")
