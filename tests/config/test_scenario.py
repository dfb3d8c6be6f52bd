"""Scenario files: keys as the flags, paths from the file's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.config.scenario import ScenarioConfig, load_scenario
from olp_ray.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    return path


def test_defaults_run_a_generated_workload_on_four_devices() -> None:
    scenario = ScenarioConfig()
    assert scenario.trace is None
    assert len(scenario.fleet.expand()) == 4


def test_fleet_in_both_notations(tmp_path: Path) -> None:
    short = load_scenario(write(tmp_path, "fleet: 2xa100-8b"))
    long = load_scenario(write(tmp_path, "fleet: {devices: [{count: 2, kind: a100-8b}]}"))
    assert short == long


def test_trace_is_relative_to_the_file(tmp_path: Path) -> None:
    assert load_scenario(write(tmp_path, "trace: t.csv")).trace == str(tmp_path / "t.csv")
    assert load_scenario(write(tmp_path, "trace: /a/t.csv")).trace == "/a/t.csv"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fleet: 4xa100-8c", r"s\.yaml: fleet: .*did you mean 'a100-8b'\?"),
        ("rate: 1\nload: 1", "rate and load both rescale"),
        ("seeds: [0, 0]", "seeds: seeds must be distinct"),
        ("seeds: []", "seeds: expected at least one seed"),
        ("predictor: oracle", r"s\.yaml: predictor: predictor 'oracle' is unknown.*\(valid: .*uniform"),
        ("predictor: {kind: uniform}", r"s\.yaml: predictor: expected a name.*uniform:0\.2.*\(valid: .*online"),
        ("router: {policy: 'online_lp:e2e'}", r"s\.yaml: router\.policy: .*policy: online_lp, preset: e2e"),
        ("loads: 1", r"loads: unknown key; did you mean 'load'\?"),
        ("router: {polic: x}", r"router\.polic: unknown key; did you mean 'policy'\?"),
        ("sim: {stage: mix}", r"sim\.stage: .*'mixed' or 'disaggregated', got 'mix'"),
        ("requests: 0", "requests: .*greater than or equal to 1, got 0"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_scenario(write(tmp_path, text))
