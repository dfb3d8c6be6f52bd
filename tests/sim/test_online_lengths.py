"""Predictions made in the simulator's loop: at arrival, from what has finished by then, and nothing else."""

from __future__ import annotations

import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.config.sim import SimConfig
from olp_ray.core.types import Request
from olp_ray.sim import simulate
from olp_ray.sweep.trial import run_seed
from olp_ray.workload import OnlineLengths, SimRequest
from olp_ray.workload.online_lengths import SHRINKAGE

TIMES_S = (1.0, 2.0, 6.0, 7.0, 30.0)
OUTPUTS = (4, 20, 3, 8, 5)  # the first finishes at 5, the second at 22, the third at 9, the fourth at 15


def requests() -> list[SimRequest]:
    return [
        SimRequest(Request(f"r{i}", at_s, 10, 1.0), output)
        for i, (at_s, output) in enumerate(zip(TIMES_S, OUTPUTS, strict=True))
    ]


def after(outputs: list[int], prior: float) -> float:
    """The prediction after these completions of one kind, on four levels."""
    mean = prior
    for _ in range(4):
        mean = (sum(outputs) + SHRINKAGE * mean) / (len(outputs) + SHRINKAGE)
    return mean


@pytest.mark.parametrize("policy", ["central_fifo", "online_lp"])
def test_a_prediction_knows_what_finished_before_the_arrival_and_no_more(policy: str) -> None:
    fleet = FleetConfig.parse("1xB8M1000")
    router = build_priced_router(RouterConfig(policy=policy), fleet, "period", seed=0)
    table = simulate(requests(), fleet, "period", router, update_s=8.0, lengths=OnlineLengths(100.0)).requests
    assert table["finish_s"].tolist() == [5, 22, 9, 15, 35]
    known = [[], [], [4], [4], [4, 20, 3, 8]]
    assert table["predicted_output_tokens"].tolist() == pytest.approx([after(seen, 100.0) for seen in known])


def test_without_a_learner_predictions_stay() -> None:
    fleet = FleetConfig.parse("1xB8M1000")
    router = build_priced_router(RouterConfig(), fleet, "period", seed=0)
    table = simulate(requests(), fleet, "period", router, update_s=8.0).requests
    assert (table["predicted_output_tokens"] == 1).all()


@pytest.mark.parametrize("stage", ["mixed", "disaggregated"])
def test_a_scenario_names_the_online_predictor_and_runs_the_same_twice(stage: str) -> None:
    scenario = ScenarioConfig(
        requests=150, rate=20.0, fleet=FleetConfig.parse("2xa100-8b"), predictor="online:77", sim=SimConfig(stage=stage)
    )
    tables = [run_seed(scenario, 0, 20.0).result.requests for _ in range(2)]
    assert tables[0].equals(tables[1])
    predicted = tables[0].sort_values("arrival_s")["predicted_output_tokens"]
    assert predicted.iloc[0] == 77
    assert predicted.nunique() > 20
