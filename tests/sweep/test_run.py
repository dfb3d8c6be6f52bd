"""A sweep on Ray Tune, small enough for every day."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.config.sweep import SweepConfig
from olp_ray.errors import ConfigError, RuntimeShellError
from olp_ray.sweep.front import read_front
from olp_ray.sweep.results import read_results
from olp_ray.sweep.run import run_sweep
from olp_ray.sweep.space import router_at
from olp_ray.sweep.trial import run_trial

SCENARIO = {"requests": 40, "rate": 40.0, "fleet": "1xa100-7b", "seeds": [0, 1]}


def sweep_of(**changes: object) -> SweepConfig:
    data: dict[str, object] = {
        "scenario": SCENARIO,
        "space": {"objective.ttft": {"values": [0, 5]}, "objective.e2e": {"values": [0, 1]}},
        "objectives": {"e2e_mean_s": "min", "ttft_p99_s": "min"},
    }
    return SweepConfig.model_validate({**data, **changes})


@pytest.mark.ray_local
def test_a_grid_gives_the_rows_of_plain_runs(ray_local: object, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    sweep = sweep_of()
    outcome = run_sweep(sweep, tmp_path, lambda done, total: told.append((done, total)))
    assert (outcome.trials, outcome.failures) == (4, ())
    assert told[-1] == (4, 4)
    rows, objectives = read_results(outcome.results)
    assert objectives == sweep.objectives
    assert len(rows) == 8
    last = rows[rows["trial"] == 3]
    point = {"objective.ttft": 5.0, "objective.e2e": 1.0}
    assert {key: last[f"param.{key}"].iloc[0] for key in point} == point
    plain = run_trial(sweep.scenario.model_copy(update={"router": router_at(sweep.scenario.router, point)}))
    assert last["e2e_mean_s"].tolist() == [metrics["e2e_mean_s"] for metrics in plain.metrics]
    assert len(read_front(outcome.results).members) >= 1

    again = run_sweep(sweep, tmp_path)  # nothing is left to do, the file is written again
    assert read_results(again.results)[0].equals(rows)
    with pytest.raises(ConfigError, match="holds the results of another sweep"):
        run_sweep(sweep_of(workers=1), tmp_path)


@pytest.mark.ray_local
def test_optuna_runs_as_many_trials_as_asked(ray_local: object, tmp_path: Path) -> None:
    space = {"objective.ttft": {"low": 0.1, "high": 10, "log": True}, "objective.e2e": {"values": [0, 1]}}
    sweep = sweep_of(space=space, search={"method": "optuna", "trials": 3, "seed": 1})
    outcome = run_sweep(sweep, tmp_path)
    rows, _ = read_results(outcome.results)
    assert rows["trial"].unique().tolist() == [0, 1, 2]
    assert rows["param.objective.ttft"].between(0.1, 10).all()
    assert rows["param.objective.ttft"].nunique() == 3


@pytest.mark.ray_local
def test_failing_trials_are_told_in_one_line(ray_local: object, tmp_path: Path) -> None:
    space = {"online_lp.guard": {"low": 2.0, "high": 3.0}}
    sweep = sweep_of(space=space, search={"method": "optuna", "trials": 1})
    with pytest.raises(RuntimeShellError, match=r"all 1 trials failed; the first: .*online_lp\.guard") as caught:
        run_sweep(sweep, tmp_path)
    assert "\n" not in str(caught.value)


def test_points_are_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"online_lp\.guard: .*got 2"):
        run_sweep(sweep_of(space={"online_lp.guard": {"values": [0.5, 2]}}), tmp_path)
    assert not list(tmp_path.iterdir())


def test_objectives_are_metrics(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'e2e_mean' is no metric; did you mean 'e2e_mean_s'\?"):
        run_sweep(sweep_of(objectives={"e2e_mean": "min"}), tmp_path)
