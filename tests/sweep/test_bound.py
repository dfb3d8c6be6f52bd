"""Bounds of scenarios: the instance by hand, no policy passes them, and where there is none."""

from __future__ import annotations

import pandas as pd
import pytest

from olp_ray.config.base import validate
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.core.types import Request
from olp_ray.errors import ConfigError
from olp_ray.sweep.bound import bound_metrics, check_bounded, period_instance, scenario_bound
from olp_ray.sweep.compare import with_regret
from olp_ray.sweep.trial import run_seed
from olp_ray.workload import SimRequest

PERIOD = {"mode": "period", "fleet": "2xB4M3000", "rate": 0.05, "requests": 60, "seeds": [0], "workload": "arena"}


def scenario(**keys: object) -> ScenarioConfig:
    return validate({**PERIOD, **keys}, ScenarioConfig, "s")


def test_instance_by_hand() -> None:
    requests = [SimRequest(Request("a", 0.4, 10, 9.0), 7), SimRequest(Request("b", 12.0, 20, 1.0), 3)]
    found = period_instance(scenario(), requests)
    assert (found.arrival.tolist(), found.prompt.tolist(), found.output.tolist()) == ([1, 12], [10, 20], [7, 3])
    assert (found.slots.tolist(), found.kv_tokens.tolist()) == ([4, 4], [3000, 3000])
    assert (found.horizon, found.drain) == (1012, True)
    assert (found.ttft_threshold, found.e2e_threshold) == (50, 501)  # strict: 49 and 500 are in time
    cut = period_instance(scenario(sim={"horizon_s": 12.5}), requests)
    assert (cut.arrival.tolist(), cut.horizon, cut.drain) == ([1], 12, False)


@pytest.mark.parametrize("metric", ["e2e_mean_s", "ttft_mean_s", "attainment"])
@pytest.mark.parametrize("policy", ["central_fifo", "sjf_reservation", "online_lp:attainment"])
def test_no_policy_passes_the_bound(metric: str, policy: str) -> None:
    config = scenario(predictor="perfect")
    run = run_seed(config.model_copy(update={"router": config.router.with_policy(policy)}), 0, 0.05)
    found = scenario_bound(config, 0, 0.05, metric)
    runs = pd.DataFrame([{"policy": policy, "seed": 0, **run.metrics}])
    regret = with_regret(runs, metric, {0: found.bound})["regret"][0]
    served = run.metrics["finished"] == run.metrics["requests"]
    assert regret >= -1e-9 if served or metric == "attainment" else pd.isna(regret)


def test_finished_within_a_horizon() -> None:
    config = scenario(sim={"horizon_s": 600}, rate=0.2)
    run = run_seed(config, 0, 0.2)
    runs = with_regret(
        pd.DataFrame([{"seed": 0, **run.metrics}]), "finished", {0: scenario_bound(config, 0, 0.2, "finished").bound}
    )
    assert 0 < runs["finished"][0] <= runs["bound"][0] + 1e-9 <= 60 + 1e-9
    assert bound_metrics(config) == ("attainment", "finished")


@pytest.mark.parametrize(
    ("keys", "metric", "expected"),
    [
        ({"mode": "timed", "fleet": "1xa100-8b"}, "attainment", "in timed mode there is none; add mode period"),
        ({}, "ttft_p99_s", "metric 'ttft_p99_s' has no hindsight bound"),
        ({}, "finished", "with a sim.horizon_s only"),
        ({"sim": {"horizon_s": 50}}, "e2e_mean_s", "has no bound with a sim.horizon_s"),
    ],
)
def test_where_there_is_no_bound(keys: dict, metric: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        check_bounded(scenario(**keys), [metric])
