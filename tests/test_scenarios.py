"""Every scenario that is shipped runs, shortened, under the policy with prices and one without."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from olp_ray.cli import main
from olp_ray.config.scenario import ScenarioConfig, load_scenario
from olp_ray.sweep.trial import run_seed, scenario_requests

FOLDER = Path(__file__).parents[1] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_it_runs(file: Path, tmp_path: Path) -> None:
    flags = ["--scenario", str(file), "--requests", "60", "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(main, ["simulate", *flags])
    assert done.exit_code == 0, done.output
    assert (pd.read_parquet(tmp_path / "o" / "requests.parquet")["status"] == "finished").all()


def test_one_of_them_compares(tmp_path: Path) -> None:
    flags = ["--scenario", str(FOLDER / "failures.yaml"), "--requests", "60", "--seeds", "2", "--workers", "1"]
    policies = ["--policy", "round_robin", "--policy", "online_lp"]
    done = CliRunner().invoke(main, ["compare", *flags, *policies, "--out", str(tmp_path / "o")])
    assert done.exit_code == 0, done.output
    assert len(pd.read_parquet(tmp_path / "o" / "results.parquet")) == 4


def scenario(name: str) -> ScenarioConfig:
    return load_scenario(FOLDER / f"{name}.yaml")


def test_sessions_hit_the_prefix_cache() -> None:
    config = scenario("sessions").model_copy(update={"requests": 400})
    table = run_seed(config, 0, 20.0).result.requests
    assert table["session"].nunique() < 400
    assert table["cached_prompt_tokens"].sum() > 0.2 * table["prompt_tokens"].sum()


def test_the_rate_shifts_where_it_says() -> None:
    times = [r.request.arrival_s for r in scenario_requests(scenario("rate_shift"), 0, None)]
    before = sum(time < 1500 for time in times)
    assert abs(before - 600) < 4 * 600**0.5
    assert (len(times) - before) / (times[-1] - 1500) == pytest.approx(0.6, rel=0.15)


def test_failures_restart_requests_and_the_new_device_works() -> None:
    result = run_seed(scenario("failures"), 0, 100.0).result.requests
    assert (result["attempts"] > 1).any()
    assert {"d0", "d1", "d2", "d3", "d4"} == set(result["device_id"])


def test_the_default_policy_swaps_too() -> None:
    assert run_seed(scenario("swap"), 0, 8.5).metrics["preemptions"] > 0


def test_swapping_is_not_recomputing() -> None:
    config = scenario("swap").model_copy(update={"requests": 300})
    config = config.model_copy(update={"router": config.router.with_policy("round_robin")})
    swapped = run_seed(config, 0, 30.0).metrics
    assert swapped["preemptions"] > 0
    recompute = config.sim.model_copy(update={"eviction": "recompute"})
    assert (
        run_seed(config.model_copy(update={"sim": recompute}), 0, 30.0).metrics["e2e_mean_s"] != swapped["e2e_mean_s"]
    )


def test_disaggregated_prompts_are_computed_before_the_router_sees_them() -> None:
    config = scenario("disaggregated").model_copy(update={"requests": 100})
    table = run_seed(config, 0, 10.0).result.requests
    assert (table["prefilled_s"] > table["arrival_s"]).all()
    assert (table["assigned_s"] >= table["prefilled_s"])[table["output_tokens"] > 1].all()
