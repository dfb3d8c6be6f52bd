"""Flags become one scenario; flags win over the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.cli.options import build_scenario
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "s.yaml"
    path.write_text("load: 0.5\nfleet: 2xa100-7b\nrouter: {preset: e2e}\n")
    return str(path)


def test_no_flags_are_the_defaults() -> None:
    assert build_scenario(None, rate=None, fleet=None) == ScenarioConfig()


def test_flags_win_over_the_file(file: str) -> None:
    scenario = build_scenario(file, fleet="3xh100-8b", requests=7, mode=None)
    assert len(scenario.fleet.expand()) == 3
    assert (scenario.load, scenario.requests, scenario.router.preset) == (0.5, 7, "e2e")


def test_what_is_rejected_is_set_in_the_router_of_the_file(file: str) -> None:
    router = build_scenario(file, rejects="never").router
    assert (router.rejects, router.preset) == ("never", "e2e")
    assert router.settings("timed").rejects == "never"
    assert build_scenario(file, rejects=None).router.settings("timed").rejects == "max_wait"


def test_a_rate_replaces_the_load_of_the_file(file: str) -> None:
    scenario = build_scenario(file, rate=3.0, load=None)
    assert (scenario.rate, scenario.load) == (3.0, None)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"fleet": "4xa100-9b"}, "command line: fleet: .*'a100-9b' is unknown"),
        ({"load": -1.0}, "command line: load: .*greater than 0, got -1.0"),
        ({"rate": 1.0, "load": 1.0}, "give one of them"),
        ({"mode": "times"}, "command line: mode: .*'timed' or 'period', got 'times'"),
        ({"requests": 0}, "command line: requests"),
        ({"load": float("nan")}, "command line: load"),
    ],
)
def test_wrong_flags_are_named(flags: dict, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        build_scenario(None, **flags)
