"""A comparison: rows, files, and no dependence on how many processes ran it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report import METRICS
from olp_ray.sim.records import RequestRow, columns
from olp_ray.sweep.compare import compare

SCENARIO = ScenarioConfig.model_validate({"requests": 40, "rate": 30.0, "fleet": "1xa100-8b", "seeds": (0, 1)})
POLICIES = ("round_robin", "online_lp:e2e")


def test_rows_and_files(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    result = compare(SCENARIO, POLICIES, tmp_path, workers=1, progress=lambda done, total: told.append((done, total)))
    assert result.runs[["policy", "seed"]].to_numpy().tolist() == [[p, s] for p in POLICIES for s in (0, 1)]
    assert set(METRICS) <= set(result.runs.columns)
    assert told == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in result.figures)
    assert pd.read_parquet(tmp_path / "results.parquet").equals(result.runs)
    for name in ("requests", "decisions"):
        assert len(pd.read_parquet(tmp_path / "runs" / "online_lp-e2e-seed1" / f"{name}.parquet")) == 40
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["rate_per_s"] == 30.0
    assert len(summary["runs"]) == 4


def test_processes_change_nothing(tmp_path: Path) -> None:
    alone = compare(SCENARIO, POLICIES, tmp_path / "a", workers=1)
    together = compare(SCENARIO, POLICIES, tmp_path / "b", workers=2)
    assert together.runs.equals(alone.runs)


def test_a_bound_adds_two_columns(tmp_path: Path) -> None:
    keys = {"mode": "period", "fleet": "1xB4M3000", "rate": 0.02, "requests": 20, "seeds": (0, 1)}
    scenario = ScenarioConfig.model_validate(keys)
    result = compare(scenario, ("central_fifo",), tmp_path, workers=1, metric="e2e_mean_s", bound=True)
    assert (result.runs["e2e_mean_s"] - result.runs["bound"]).equals(result.runs["regret"])
    assert (result.runs["regret"] > -1e-9).all()
    assert result.runs["bound"].nunique() == 2


def test_a_second_comparison_replaces_the_first(tmp_path: Path) -> None:
    compare(SCENARIO, POLICIES, tmp_path, workers=1)
    result = compare(SCENARIO, ("central_fifo",), tmp_path, workers=1)
    assert result.replaced == 13
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["central_fifo-seed0", "central_fifo-seed1"]
    assert result.decision_times["calls"].min() > 0
    assert set(pd.read_parquet(tmp_path / "runs" / "central_fifo-seed0" / "requests.parquet").columns) == set(
        columns(RequestRow)
    )  # and none of them of a wall clock


def test_unknown_policy_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="policy 'robin' is unknown"):
        compare(SCENARIO, ("round_robin", "robin"), tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_a_policy_given_twice(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each may be given once"):
        compare(SCENARIO, ("round_robin", "round_robin"), tmp_path)
