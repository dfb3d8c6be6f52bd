"""The hindsight bound on tiny instances: bound, then the optimum by brute force, then what any policy achieves."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from olp_ray.config import DeviceConfig, FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.core.hindsight import hindsight_bound
from olp_ray.core.period_model import Metric, PeriodInstance, list_schedule
from olp_ray.core.types import Request
from olp_ray.errors import WorkloadError
from olp_ray.sim import simulate
from olp_ray.workload import SimRequest

HOLDING = ["central_fifo", "central_sjf", "on_time_sjf", "sjf_reservation", "online_lp", "online_lp_paper"]
AT_ONCE = ["round_robin", "least_outstanding", "least_kv"]


def tiny(seed, drain=False):
    rng = np.random.default_rng(seed)
    requests, devices, horizon = int(rng.integers(1, 5)), int(rng.integers(1, 3)), int(rng.integers(3, 8))
    equal = rng.random() < 0.5
    slots = rng.integers(1, 3, devices)
    kv_tokens = rng.integers(8, 20, devices)
    return PeriodInstance(
        arrival=np.sort(rng.integers(0, min(horizon, 4), requests)),
        prompt=rng.integers(0, 6, requests),
        output=rng.integers(1, 6, requests),
        slots=np.full(devices, slots[0]) if equal else slots,
        kv_tokens=np.full(devices, kv_tokens[0]) if equal else kv_tokens,
        horizon=horizon,
        ttft_threshold=float(rng.integers(1, 4)),
        e2e_threshold=float(rng.choice([np.inf, 5.0, 8.0])),
        drain=drain,
    )


def fits_somewhere(instance):
    """Whether every request fits on some device: one that does not is never served."""
    return bool((instance.prompt + instance.output <= instance.kv_tokens.max()).all())


def keeps_limits(instance, start, device):
    """Slots and KV tokens of every period before H, one by one."""
    for g in range(len(instance.slots)):
        on = [j for j in range(instance.requests) if device[j] == g]
        for q in range(instance.horizon):
            live = [j for j in on if start[j] <= q < start[j] + instance.output[j]]
            kv = sum(instance.prompt[j] + (q - start[j]) + 1 for j in live)
            if len(live) > instance.slots[g] or kv > instance.kv_tokens[g]:
                return False
    return True


def brute_force(instance, last):
    """Best value of every metric over all starts before `last` on all devices, or none."""
    options = [
        [(math.inf, -1), *itertools.product(range(a, last), range(len(instance.slots)))] for a in instance.arrival
    ]
    best = {}

    def extend(chosen):
        start = np.array([min(k, instance.horizon) for k, _ in chosen])
        device = [g for _, g in chosen]
        part = dict(zip(range(len(chosen)), device, strict=True))
        padded = [part.get(j, -1) for j in range(instance.requests)]
        full = np.concatenate([start, np.full(instance.requests - len(chosen), instance.horizon)])
        if chosen and chosen[-1][1] >= 0 and not keeps_limits(instance, full, padded):
            return
        if len(chosen) < instance.requests:
            for option in options[len(chosen)]:
                extend([*chosen, option])
            return
        for metric in Metric:
            value = instance.score(metric, full)
            better = min if metric.is_cost else max
            best[metric] = better(best.get(metric, value), value)

    extend([])
    return best


def is_no_better(metric, value, bound):
    return value >= bound - 1e-7 if metric.is_cost else value <= bound + 1e-7


def check_against_brute_force(seed):
    instance = tiny(seed)
    best = brute_force(instance, instance.horizon)
    grid, pooling = 1 + seed % 3, ("classes", "fleet")[seed % 2]
    for metric in Metric:
        found = hindsight_bound(instance, metric, grid_periods=grid, pooling=pooling)
        assert is_no_better(metric, best[metric], found.bound), (seed, metric, best[metric], found)
        assert is_no_better(metric, found.achieved, best[metric]), (seed, metric, best[metric], found)
        assert is_no_better(metric, found.lp_value, found.bound)


def policy_starts(instance, policy, seed):
    """Starts under a policy that knows the lengths, or None when the engine preempted."""
    rows = enumerate(zip(instance.arrival.tolist(), instance.prompt.tolist(), instance.output.tolist(), strict=True))
    requests = [SimRequest(Request(f"{j}", float(a), s, float(o)), o) for j, (a, s, o) in rows]
    limits = zip(instance.slots.tolist(), instance.kv_tokens.tolist(), strict=True)
    fleet = FleetConfig(devices=tuple(DeviceConfig(slots=b, kv_tokens=m) for b, m in limits))
    router = build_priced_router(RouterConfig(policy=policy), fleet, "period", seed)
    table = simulate(
        requests, fleet, "period", router, update_s=8.0, sim=SimConfig(horizon_s=instance.horizon)
    ).requests
    if table["preemptions"].sum():
        return None
    start = np.full(instance.requests, instance.horizon)
    started = table["start_s"].notna().to_numpy()
    start[table["request_id"].astype(int).to_numpy()[started]] = table["start_s"].to_numpy()[started].astype(int)
    return start


def check_against_policies(seed):
    instance = tiny(seed)
    if (instance.prompt + instance.output > instance.kv_tokens.min()).any():
        return  # the simulated engine ends a request early that outgrows its device
    bounds = {metric: hindsight_bound(instance, metric, grid_periods=2).bound for metric in Metric}
    for policy in (HOLDING[seed % len(HOLDING)], AT_ONCE[seed % len(AT_ONCE)]):
        start = policy_starts(instance, policy, seed)
        if start is None:
            continue
        for metric, bound in bounds.items():
            assert is_no_better(metric, instance.score(metric, start), bound), (seed, policy, metric)


@pytest.mark.parametrize("block", range(6))
def test_bound_then_brute_force_then_the_list_schedule(block):
    for seed in range(20 * block, 20 * (block + 1)):
        check_against_brute_force(seed)


def test_a_request_may_start_where_only_its_end_after_the_horizon_would_not_fit():
    instance = tiny(1195)
    assert (instance.horizon, instance.kv_tokens.tolist(), (instance.prompt + instance.output)[:2].tolist()) == (
        3,
        [16, 8],
        [9, 9],
    )
    bound = hindsight_bound(instance, Metric.MEAN_TTFT, grid_periods=1).bound
    assert bound <= instance.score(Metric.MEAN_TTFT, np.array([0, 0, 3, 3])) == 1.0


@pytest.mark.parametrize("block", range(4))
def test_no_policy_beats_the_bound(block):
    for seed in range(30 * block, 30 * (block + 1)):
        check_against_policies(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_instances():
    for seed in range(1000, 3000):
        check_against_brute_force(seed)
        check_against_policies(seed)


@pytest.mark.parametrize("seed", [seed for seed in range(14) if fits_somewhere(tiny(seed))])
def test_drained_runs_are_bounded_too(seed):
    """All starts long after the horizon: a run that serves everything, with room unlimited after H in the bound."""
    instance = tiny(seed, drain=True)
    starts = [list_schedule(instance, order) for order in itertools.permutations(range(instance.requests))]
    for metric in (Metric.MEAN_E2E, Metric.MEAN_TTFT, Metric.ATTAINMENT):
        bound = hindsight_bound(instance, metric, grid_periods=2).bound
        assert all(is_no_better(metric, instance.score(metric, start), bound) for start in starts)


def queue_of_equals(requests, horizon):
    """One slot and requests of 4 periods that are all there at 0."""
    many = np.full(requests, 4)
    return PeriodInstance(many * 0, many * 0, many, np.array([1]), np.array([100]), horizon, ttft_threshold=9)


def test_closed_form_of_one_slot():
    """They run one after the other: starts 0, 4, 8, 12, 16; three of five start within 9 periods."""
    instance = queue_of_equals(5, 20)
    on_grid = {metric: hindsight_bound(instance, metric, grid_periods=1) for metric in Metric}
    assert on_grid[Metric.MEAN_TTFT].achieved == 8.0
    assert on_grid[Metric.MEAN_E2E].achieved == 12.0
    assert (on_grid[Metric.COMPLETED].bound, on_grid[Metric.COMPLETED].achieved) == (1.0, 1.0)
    assert on_grid[Metric.ATTAINMENT].achieved == 0.6
    for metric, found in on_grid.items():
        assert is_no_better(metric, found.achieved, found.bound)
        assert found.looseness < 0.35


def test_coarser_grids_and_the_whole_fleet_as_one_only_loosen():
    rng = np.random.default_rng(5)
    instance = PeriodInstance(
        np.sort(rng.integers(0, 60, 60)),
        rng.integers(5, 60, 60),
        rng.integers(2, 30, 60),
        np.array([4, 2]),
        np.array([150, 400]),
        101,
    )
    exact = {"tolerance": 1e-7}
    fine, coarse = (hindsight_bound(instance, Metric.MEAN_E2E, grid_periods=d, **exact) for d in (4, 16))
    pooled = hindsight_bound(instance, Metric.MEAN_E2E, grid_periods=4, pooling="fleet", **exact)
    assert coarse.bound <= fine.bound + 1e-5
    assert pooled.bound <= fine.bound + 1e-5
    assert fine.bound == pytest.approx(fine.lp_value, rel=1e-5)
    assert (coarse.grid_periods, pooled.pooling) == (16, "fleet")


def test_a_bound_that_is_cut_short_still_holds_and_progress_is_told():
    instance, told = queue_of_equals(30, 200), []
    cut = hindsight_bound(instance, Metric.MEAN_E2E, grid_periods=4, max_rounds=1, progress=told.append)
    whole = hindsight_bound(instance, Metric.MEAN_E2E, grid_periods=4)
    assert [p.round for p in told] == [1]
    assert cut.bound <= whole.bound + 1e-9 <= whole.achieved + 1e-9


def test_list_schedule_fills_gaps_and_keeps_limits():
    instance = tiny(11)
    for order in itertools.permutations(range(instance.requests)):
        start = list_schedule(instance, order)
        assert ((start >= instance.arrival) | (start == instance.horizon)).all()
    equals = queue_of_equals(3, 20)
    assert list_schedule(equals, [2, 0, 1]).tolist() == [4, 8, 0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"prompt": np.array([1])}, r"prompt: expected shape \(5,\), got \(1,\)"),
        ({"output": np.zeros(5, dtype=int)}, "output: the least is 0; expected >= 1"),
        ({"slots": np.array([], dtype=int), "kv_tokens": np.array([], dtype=int)}, "at least one device"),
        ({"horizon": 0}, "horizon is 0; expected it after the last arrival"),
    ],
)
def test_bad_instances(change, text):
    good = queue_of_equals(5, 20)
    fields = {name: getattr(good, name) for name in ("arrival", "prompt", "output", "slots", "kv_tokens", "horizon")}
    with pytest.raises(WorkloadError, match=text):
        PeriodInstance(**{**fields, **change})


def test_bad_questions():
    none = np.zeros(0, dtype=int)
    with pytest.raises(WorkloadError, match="at least one request"):
        hindsight_bound(PeriodInstance(none, none, none, np.array([1]), np.array([9]), 5), Metric.MEAN_E2E)
    one = np.ones(1, dtype=int)
    with pytest.raises(WorkloadError, match="every request completes"):
        hindsight_bound(PeriodInstance(one, one, one, one, one * 9, 5, drain=True), Metric.COMPLETED)
