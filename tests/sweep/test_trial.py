"""From scenario to metrics."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.config.sim import SimConfig
from olp_ray.errors import ConfigError
from olp_ray.sweep.trial import inline_router, run_seed, run_trial, scenario_requests, settle_arrivals

SMALL = ScenarioConfig.model_validate({"requests": 60, "fleet": "2xa100-8b", "seeds": (0, 1)})


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "t.csv"
    rows = [f"{i * 0.5},{100 + i},{20 + i}" for i in range(50)]
    path.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(rows))
    return str(path)


def span_rate(requests: list) -> float:
    times = [r.request.arrival_s for r in requests]
    return (len(times) - 1) / (times[-1] - times[0])


def test_a_load_is_a_share_of_saturation() -> None:
    half, full = (settle_arrivals(SMALL.model_copy(update={"load": load})) for load in (0.5, 1.0))
    assert half.saturation == full.saturation == full.rate
    assert half.rate == pytest.approx(0.5 * full.rate)


def test_a_generated_workload_has_a_load_of_its_own_unless_told() -> None:
    assert settle_arrivals(SMALL) == settle_arrivals(SMALL.model_copy(update={"load": 1.25}))


def test_a_rate_needs_no_measuring() -> None:
    arrivals = settle_arrivals(SMALL.model_copy(update={"rate": 3.0}))
    assert (arrivals.rate, arrivals.saturation) == (3.0, None)


def test_a_trace_keeps_its_times_unless_told(trace: str) -> None:
    scenario = SMALL.model_copy(update={"trace": trace})
    assert settle_arrivals(scenario).rate is None
    assert span_rate(scenario_requests(scenario, 0, None)) == pytest.approx(2.0)
    assert span_rate(scenario_requests(scenario, 0, 8.0)) == pytest.approx(8.0)


def test_the_seed_moves_the_start_of_a_trace_and_the_errors(trace: str) -> None:
    scenario = SMALL.model_copy(update={"trace": trace})
    first, again, other = (scenario_requests(scenario, seed, None) for seed in (0, 0, 1))
    assert first == again
    assert [r.output_tokens for r in first] != [r.output_tokens for r in other]
    assert sorted(r.output_tokens for r in first) == sorted(r.output_tokens for r in other)


def test_generated_requests_arrive_at_the_rate() -> None:
    assert span_rate(scenario_requests(SMALL, 3, 7.0)) == pytest.approx(7.0)


def test_equal_seeds_give_equal_tables_and_blocks_change_nothing() -> None:
    in_two_blocks = functools.partial(inline_router, blocks=2)
    first, second = run_seed(SMALL, 1, 20.0), run_seed(SMALL, 1, 20.0, open_router=in_two_blocks)
    assert first.result.requests.equals(second.result.requests)
    assert first.result.decisions.equals(second.result.decisions)
    assert first.metrics["finished"] == 60


@pytest.mark.parametrize("blocks", [1, 2])
def test_shards_for_the_policy_that_keeps_its_own_prices_are_refused(blocks: int) -> None:
    paper = SMALL.model_copy(update={"router": SMALL.router.with_policy("online_lp_paper")})
    with pytest.raises(ConfigError, match=rf"shards is {blocks} with policy 'online_lp_paper'.*shards 0"):
        run_seed(paper, 1, 20.0, open_router=functools.partial(inline_router, blocks=blocks))


def test_lost_updates_of_the_scenario_reach_the_router() -> None:
    lost = SimConfig(missed_updates=tuple((update, ("d0", "d1")) for update in range(200)))
    routers = []

    @contextmanager
    def kept(*args: Any, **options: Any) -> Iterator[Any]:
        with inline_router(*args, **options) as router:
            routers.append(router)
            yield router

    for scenario in (SMALL, SMALL.model_copy(update={"sim": lost})):
        run_seed(scenario, 1, 20.0, open_router=kept)
    assert [router.router.policy.prices.missed > 0 for router in routers] == [False, True]


def test_a_trial_runs_every_seed() -> None:
    outcome = run_trial(SMALL.model_copy(update={"rate": 20.0}))
    rows = outcome.rows()
    assert [row["seed"] for row in rows] == [0, 1]
    assert outcome.mean("e2e_mean_s") == pytest.approx(sum(row["e2e_mean_s"] for row in rows) / 2)
