"""Sweep files."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.config.sweep import load_sweep, router_keys
from olp_ray.errors import ConfigError

GOOD = """
space:
  objective.ttft: {low: 1e-2, high: 1e2, log: true}
  objective.e2e: {values: [0, 1]}
search: {method: random, trials: 8, seed: 1}
objectives: {ttft_mean_s: min, throughput_tokens_per_s: max}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path: Path) -> None:
    sweep = load_sweep(write(tmp_path, GOOD + "scenario: {trace: t.csv}"))
    assert sweep.space["objective.ttft"].low == 0.01
    assert list(sweep.objectives) == ["ttft_mean_s", "throughput_tokens_per_s"]
    assert sweep.scenario.trace == str(tmp_path / "t.csv")


def test_keys_are_numbers_of_the_router_config() -> None:
    assert {"objective.ttft", "online_lp.guard"} <= set(router_keys())
    assert "online_lp.reservation" not in router_keys()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("objective.ttft", "objective.tfft", r"'objective\.tfft' is no number .*did you mean 'objective\.ttft'\?"),
        ("method: random, trials: 8", "method: grid", r"space\.objective\.ttft: a grid needs values"),
        ("method: random, trials: 8", "method: random", "trials is needed for random"),
        ("method: random", "method: grid", "a grid runs every combination"),
        ("low: 1e-2", "low: 0", "a log range must start above 0"),
        ("low: 1e-2, ", "", "expected values, or low < high"),
        ("values: [0, 1]", "values: [0, 1], low: 2", "give either values, or low and high"),
        ("values: [0, 1]", "values: []", "at least 1 item"),
        ("ttft_mean_s: min", "ttft_mean_s: down", r"objectives\.ttft_mean_s: .*'min' or 'max'"),
    ],
)
def test_faults_are_named(tmp_path: Path, old: str, new: str, expected: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=expected):
        load_sweep(write(tmp_path, GOOD.replace(old, new)))
