"""The paper's policy: its reward against eq. 2 and 3 period by period, its greedy pass against Algorithm 1 written out
over dense residuals, what it records, its switches, and that no weights of the paper idle the devices."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.config import PRESETS, FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.core.exact_prices import solve_packing, solve_packing_integral
from olp_ray.core.explanation import WaitReason
from olp_ray.core.packing import Packing
from olp_ray.core.paper_prices import Column
from olp_ray.core.policies.online_lp_paper import fixed_horizon_reward, normalised
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    Device,
    DeviceJoined,
    DeviceLost,
    Finished,
    Objective,
    Reconfigure,
    Reject,
    RejectReason,
    Request,
    Started,
)
from olp_ray.sim import simulate
from olp_ray.workload import SimRequest

T = 60
PAPER = sorted(name for name in PRESETS if name.startswith("paper_"))
BALANCED = Objective(0.01, 0.5, 0.3, 1.0, 2.0, 3.0, 30.0, 10.0)


@pytest.fixture(scope="module")
def route(make_settings, limits):
    def build(devices, objective=BALANCED, seed=0, rejects="never", **switches):
        plain = make_settings(objective, rejects=rejects)
        paper = dataclasses.replace(plain.paper_lp, **{"horizon_s": float(T), "learning_rate": 0.01, **switches})
        return Router(devices, "online_lp_paper", dataclasses.replace(plain, paper_lp=paper), limits, seed)

    return build


def literal_reward(objective, k, arrival, output):
    """Section 3.1 by counting periods 1..T, with the constants of eq. 2 and 3 taken out again."""
    periods = range(arrival, T + 1)
    not_finished = sum(1 for s in periods if s < k + output)
    not_started = sum(1 for s in periods if s < k)
    return (
        objective.throughput * sum(1 for s in range(k, T + 1) if s < k + output)
        + objective.e2e * (len(periods) - not_finished)
        + objective.ttft * (len(periods) - not_started)
        + objective.qps
        + objective.tail_e2e * (k + output - arrival < objective.e2e_threshold_s)
        + objective.tail_ttft * (k - arrival < objective.ttft_threshold_s)
    )


@given(st.integers(1, T), st.integers(0, 20), st.integers(1, 80))
def test_reward_is_the_papers(k, waited, output):
    arrival = max(k - waited, 1)
    found = fixed_horizon_reward(
        BALANCED,
        float(T),
        float(k),
        np.array([[arrival]]),
        np.array([[float(output)]]),
        np.array([[float(output)]]),
        np.zeros(1),
        np.ones(1),
        np.array([[30.0]]),
        np.array([[10.0]]),
    )
    assert found[0, 0] == pytest.approx(literal_reward(BALANCED, k, arrival, output))


@pytest.mark.parametrize(("rule", "expected"), [("largest", [0.5, 1.0]), ("one", [1.0, 1.0]), ("none", [2.0, 5.0])])
def test_reward_normalisers(rule, expected):
    assert normalised(np.array([2.0, 5.0]), rule, 4.0).tolist() == expected


class PlainPeriods:
    """Residents as plain tuples, perfect predictions; the greedy pass of Algorithm 1 over dense residuals."""

    def __init__(self, slots, kv_tokens):
        self.slots, self.kv_tokens = slots, kv_tokens
        self.residents = []  # (device, prompt, output, start)
        self.rotation = 0

    def used(self, k, devices):
        """Slots and KV tokens of every period k..T, (G, 2, T - k + 1)."""
        used = np.zeros((devices, 2, T - k + 1))
        for g, prompt, output, start in self.residents:
            for period in range(k, min(start + output, T + 1)):
                used[g, :, period - k] += 1, prompt + (period - start) + 1  # eq. 1
        return used

    def admit(self, k, waiting, margin):
        """Lines 10-16; ties by arrival and id, then the emptier device, then a rotating one."""
        devices = margin.shape[1]
        placed = {}
        while True:
            used = self.used(k, devices)
            now = np.maximum(used[:, 0, 0] / self.slots, self.held(k, devices) / self.kv_tokens)
            order = sorted(
                (-margin[j, g], j, now[g], (g - self.rotation) % devices, g)
                for j in range(len(waiting))
                for g in range(devices)
                if margin[j, g] > 0 and j not in placed
            )
            fitting = (entry for entry in order if self.fits(k, waiting[entry[1]], entry[4], used))
            chosen = next(fitting, None)
            if chosen is None:
                return [(waiting[j].id, f"g{g}") for j, g in placed.items()]
            _, j, _, _, g = chosen
            placed[j] = g
            self.rotation += 1
            request = waiting[j]
            self.residents.append((g, request.prompt_tokens, int(request.predicted_output_tokens), k))

    def held(self, k, devices):
        """KV tokens held before this period's token."""
        return np.array([sum(s + k - start for h, s, _, start in self.residents if h == g) for g in range(devices)])

    def fits(self, k, request, g, used):
        for period in range(k, min(k + int(request.predicted_output_tokens), T + 1)):
            slots, kv = used[g, :, period - k]
            if slots + 1 > self.slots or kv + request.prompt_tokens + (period - k) + 1 > self.kv_tokens:
                return False
        return True


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_decisions_are_algorithm_1_over_dense_residuals(seed, route):
    rng = np.random.default_rng(seed)
    router = route([Device("g0", 3, 90, 1.0), Device("g1", 3, 90, 1.0)], seed=seed)
    plain = PlainPeriods(3, 90)
    waiting, running = [], {}
    for k in range(1, 31):
        events = [Finished(key, end - start) for key, (start, end) in running.items() if end == k]
        running = {key: span for key, span in running.items() if span[1] != k}
        plain.residents = [r for r in plain.residents if r[3] + r[2] > k]
        arrived = [
            Request(f"{k:02d}-{i}", float(k), int(rng.integers(1, 40)), float(rng.integers(1, 30)))
            for i in range(rng.poisson(0.8))
        ]
        waiting += arrived
        step = router.handle(float(k), [*events, *(Arrived(r) for r in arrived)])
        prices = router.policy.prices
        if waiting:
            margin = plain_margin(waiting, k, prices)
            expected = plain.admit(k, waiting, margin)
            assert [(d.request.id, d.key.device_id) for d in step.decisions] == expected
        keys = [d.key for d in step.decisions]
        running |= {d.key: (k, k + int(d.request.predicted_output_tokens)) for d in step.decisions}
        router.handle(float(k), [Started(key) for key in keys])
        waiting = [r for r in waiting if r.id not in {key.request_id for key in keys}]
    router.check_invariants()


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_best_reward_of_a_step_is_brute_forces(seed, route):
    """Eq. 4 and 5 from the policy's own columns and rewards, solved in whole numbers, against every way of sending each
    request to one device or none, period by period."""
    rng = np.random.default_rng(seed)
    devices, count, k = int(rng.integers(1, 3)), int(rng.integers(1, 5)), int(rng.integers(T - 8, T))
    slots, kv_tokens = int(rng.integers(1, 4)), int(rng.integers(20, 120))
    router = route([Device(f"g{g}", slots, kv_tokens, 1.0) for g in range(devices)], reward_normaliser="none")
    waiting = [
        Request(f"{i}", float(k - rng.integers(0, 9)), int(rng.integers(1, 40)), float(rng.integers(1, 12)))
        for i in range(count)
    ]
    waiting.sort(key=lambda r: (r.arrival_s, r.id))
    plain = PlainPeriods(slots, kv_tokens)
    plain.residents = [(0, int(rng.integers(1, 15)), 5, k)] if slots > 1 else []
    for request in waiting:
        router.queue.add(request, 0)
    reward, columns = router.policy._columns(router._view(), float(k), k)
    free = np.array([slots, kv_tokens], dtype=float)[:, None] - plain.used(k, devices)
    best = 0.0
    for choice in itertools.product(range(-1, devices), repeat=count):
        trial = PlainPeriods(slots, kv_tokens)
        trial.residents = list(plain.residents)
        value = 0.0
        for j, g in enumerate(choice):
            if g < 0:
                continue
            value += literal_reward(BALANCED, k, int(waiting[j].arrival_s), int(waiting[j].predicted_output_tokens))
            trial.residents.append((g, waiting[j].prompt_tokens, int(waiting[j].predicted_output_tokens), k))
        used = trial.used(k, devices)
        if (used[:, 0] <= slots).all() and (used[:, 1] <= kv_tokens).all():
            best = max(best, value)
    problem = step_problem(reward, columns, free, k)
    found = problem.value @ solve_packing_integral(problem)
    assert found == pytest.approx(best)
    assert solve_packing(problem).objective >= best - 1e-7


def step_problem(reward, columns, free, k):
    """Eq. 4 and 5: one option per request and device, one row per device, resource and period."""
    devices, _, width = free.shape
    entries = []
    for option, column in enumerate(columns):
        device, start, stop = (int(column[c]) for c in (Column.DEVICE, Column.START, Column.STOP))
        for q in range(start, min(stop, k + width)):
            kv = column[Column.LEVEL] + column[Column.GROWTH] * (q - start)
            entries += [((device * 2) * width + q - k, option, 1.0), ((device * 2 + 1) * width + q - k, option, kv)]
    row, option, coefficient = np.array(entries).T
    group = np.repeat(np.arange(len(reward)), devices)
    limit = np.ones(len(reward))
    return Packing(free.ravel(), reward.ravel(), group, limit, row.astype(int), option.astype(int), coefficient)


def plain_margin(waiting, k, prices):
    """r^norm - a'p period by period (eq. 10); the column recorded in this step counts as seen."""
    reward = [literal_reward(BALANCED, k, int(r.arrival_s), int(r.predicted_output_tokens)) for r in waiting]
    largest = max([*reward, *prices.columns[:, Column.REWARD]])
    margin = np.empty((len(waiting), len(prices.prices)))
    for j, request in enumerate(waiting):
        for g, (slot_price, kv_price) in enumerate(prices.prices):
            cost = sum(
                slot_price[q] + prices.kv_scale * kv_price[q] * (request.prompt_tokens + (q - k) + 1)
                for q in range(k, min(k + int(request.predicted_output_tokens), T + 1))
            )
            margin[j, g] = min(reward[j] / largest, 1.0) - cost
    return np.round(margin, 12)


def dear(router):
    """Prices so high that no margin is above 0."""
    prices = router.policy.prices
    prices.follow(["g0"], 1.0)
    prices.prices[:] = 10.0
    prices.record(np.array([[0, 0, T, 1, 1, 1.0]]))


@pytest.mark.parametrize(("recording", "recorded"), [("best", 1), ("best_positive", 0), ("admitted", 0)])
def test_the_best_column_is_recorded_even_if_its_margin_is_negative(recording, recorded, route):
    router = route([Device("g0", 4, 1000, 1.0)], recording=recording)
    dear(router)
    step = router.handle(1.0, [Arrived(Request("a", 1.0, 10, 20.0)), Arrived(Request("b", 1.0, 10, 5.0))])
    assert (step.decisions, step.next_wake_s) == ((), 2.0)
    columns = router.policy.prices.columns[1:]
    assert len(columns) == recorded
    if recorded:
        assert columns[0, : Column.REWARD].tolist() == [0, 1, 6, 11, 1]  # b: periods 1..5, 11 KV tokens in the first


def test_prices_move_once_per_period_and_only_while_something_waits(route):
    router = route([Device("g0", 1, 1000, 1.0)])
    router.handle(1.0, [Arrived(Request("a", 1.0, 10, 20.0)), Arrived(Request("b", 1.0, 10, 20.0))])
    for k in (2.0, 3.0):
        router.handle(k, [])
        before = router.policy.prices.prices.copy()
        router.handle(k, [])
        assert (router.policy.prices.prices == before).all()
    assert before.any()
    idle = route([Device("g0", 4, 1000, 1.0)])
    idle.handle(1.0, [Arrived(Request("a", 1.0, 10, 20.0))])
    step = idle.handle(2.0, [])
    assert (len(idle.policy.prices.columns), step.next_wake_s) == (1, np.inf)


def test_exact_prices_are_the_optimum_of_their_own_history(route):
    """The SAA value at the prices in force is the LP's; the subgradient's is above it."""
    gaps = {}
    for exact in (True, False):
        router = route([Device("g0", 2, 120, 1.0)], exact=exact)
        for k in range(1, 20):
            router.handle(float(k), [Arrived(Request(f"{k}", float(k), 5 + k, 10.0))])
        policy, now = router.policy, 19
        prices = policy.prices
        history = prices.columns
        prices.columns = history[:-1]  # what the last update saw
        scarcity = np.full((1, 2, prices.slots_ahead(now)), 0.05)
        rewards = normalised(prices.columns[:, Column.REWARD], "largest", history[:, Column.REWARD].max())
        problem = prices.saa(now, scarcity, rewards)
        best = solve_packing(problem)
        if exact:
            prices.set_ahead(now, best.prices.reshape(scarcity.shape))
        value = problem.dual_objective(prices.prices[:, :, now : now + scarcity.shape[2]].ravel())
        gaps[exact] = value - best.objective
        router.check_invariants()
    assert gaps[True] == pytest.approx(0.0, abs=1e-7)
    assert gaps[False] >= -1e-9


def test_mixed_batches_take_one_more_step_and_count_prompts_when_asked(route):
    alpha = Objective(1.0, 0, 0, 0, 0, 0, 30.0, 10.0)
    router = route([Device("g0", 4, 1000, 1.0)], alpha, mixed=True, count_prompt_tokens=True)
    router.handle(1.0, [Arrived(Request("a", 1.0, 10, 5.0))])
    (column,) = router.policy.prices.columns
    assert column.tolist() == [0, 1, 7, 10, 1, 15]  # Appendix A: s, s + 1, .. s + o over 1 + o steps; s + o tokens


@pytest.mark.parametrize(
    ("mixed", "count_prompt_tokens", "column"),
    [
        (False, False, [0, 1, 6, 11, 1, 5]),  # eq. 1: s + 1, .. s + o over o steps; o tokens
        (False, True, [0, 1, 6, 11, 1, 15]),
        (True, False, [0, 1, 7, 10, 1, 5]),
        (True, True, [0, 1, 7, 10, 1, 15]),
    ],
)
def test_both_token_counts_go_with_both_memory_kernels(mixed, count_prompt_tokens, column, route):
    alpha = Objective(1.0, 0, 0, 0, 0, 0, 30.0, 10.0)
    router = route([Device("g0", 4, 1000, 1.0)], alpha, mixed=mixed, count_prompt_tokens=count_prompt_tokens)
    router.handle(1.0, [Arrived(Request("a", 1.0, 10, 5.0))])
    assert router.policy.prices.columns.tolist() == [column]


def test_after_the_horizon_what_waits_starts_in_order_of_arrival(route):
    router = route([Device("g0", 1, 1000, 1.0)])
    router.handle(T, [Arrived(Request("a", 58.0, 10, 90.0)), Arrived(Request("b", 59.0, 10, 5.0))])
    assert len(router.queue) == 1
    (running,) = (key for key, _ in router.ledger)
    step = router.handle(T + 1.0, [Finished(running, 1), Arrived(Request("c", T + 1.0, 10, 1.0))])
    waiting = {"a", "b"} - {running.request_id}
    assert {d.request.id for d in step.decisions} == waiting


def test_after_the_horizon_what_fits_no_device_that_is_there_is_passed_over(route):
    router = route([Device("small", 2, 100, 1.0), Device("large", 2, 1000, 1.0)])
    large, little = Request("large", T + 1.0, 500, 9.0), Request("little", T + 2.0, 10, 9.0)
    router.handle(T + 0.5, [DeviceLost("large", 0)])
    router.queue.add(large, 0)
    router.queue.add(little, 0)
    assert [answer.reason for answer in router.explain(T + 3.0)][1] is WaitReason.POLICY_NOT_READY
    (decision,) = router.handle(T + 3.0, []).decisions
    assert (decision.request.id, decision.key.device_id) == ("little", "small")
    (decision,) = router.handle(T + 4.0, [DeviceJoined(Device("large", 2, 1000, 1.0, incarnation=1))]).decisions
    assert decision.request.id == "large"


@pytest.mark.parametrize("rejects", ["max_wait", "never"])
@pytest.mark.parametrize("devices", [0, 1])
@pytest.mark.parametrize("arrival_s", [1.0, T + 1.0])
def test_the_bound_ends_a_wait_without_devices_and_beyond_the_horizon(arrival_s, devices, rejects, route):
    router = route([Device("g0", 1, 1000, 1.0)], rejects=rejects)
    first, second = Request("running", arrival_s, 10, 500.0), Request("r", arrival_s, 10, 20.0)
    router.handle(arrival_s, [Arrived(first)])
    step = router.handle(arrival_s, [Arrived(second)] if devices else [Arrived(second), DeviceLost("g0", 0)])
    bound_s, now_s = arrival_s + router.snapshot()["settings"].online_lp.max_wait_s, arrival_s
    assert bound_s > T + 1.0
    while step.next_wake_s < bound_s:
        assert step.next_wake_s > now_s
        now_s = step.next_wake_s
        step = router.handle(now_s, [])
        assert step.decisions == ()
    assert step.next_wake_s == (math.inf if rejects == "never" else bound_s)
    waiting = ["r"] if devices else ["r", "running"]
    told = [(d.request.id, d.reason) for d in router.handle(bound_s, []).decisions]
    assert told == ([] if rejects == "never" else [(name, RejectReason.MAX_WAIT) for name in waiting])


@pytest.mark.parametrize("rejects", ["deadline", "never"])
def test_a_late_request_worth_nothing_waits_or_is_rejected(rejects, route):
    deadlines = Objective(0, 0, 0, 0, 1.0, 1.0, 30.0, 10.0)
    router = route([Device("g0", 1, 1000, 1.0)], deadlines, rejects=rejects)
    router.handle(1.0, [Arrived(Request("a", 1.0, 10, 5.0)), Arrived(Request("b", 1.0, 10, 15.0))])
    (running,) = (key for key, _ in router.ledger)
    assert (running.request_id, router.handle(15.0, []).decisions) == ("a", ())
    step = router.handle(16.0, [])  # b: 1 + 30 - 15 is its last useful start
    assert [d.request.id for d in step.decisions] == (["b"] if rejects == "deadline" else [])
    assert [type(d) for d in step.decisions] == ([Reject] if rejects == "deadline" else [])


def test_restored_router_goes_on_the_same_and_a_new_objective_forgets(route):
    devices = [Device("g0", 2, 200, 1.0), Device("g1", 2, 200, 1.0)]
    rng = np.random.default_rng(0)
    routers = [route(devices), route(devices)]

    def arrivals(k):
        return [Arrived(Request(f"{k}", float(k), int(rng.integers(5, 50)), float(rng.integers(5, 30))))]

    for k in range(1, 15):
        routers[0].handle(float(k), arrivals(k))
    routers[1].restore(routers[0].snapshot())
    for k in range(15, 25):
        events = [*arrivals(k), *(Finished(key, 9) for key, _ in list(routers[0].ledger)[:1])]
        assert routers[0].handle(float(k), events).decisions == routers[1].handle(float(k), events).decisions
    assert len(routers[1].policy.prices.columns)
    routers[1].handle(25.0, [Reconfigure(objective=dataclasses.replace(BALANCED, e2e=0.0))])
    assert len(routers[1].policy.prices.columns) == 1  # the one of this step


def test_explain_gives_reward_margin_and_option_value(route):
    router = route([Device("g0", 1, 1000, 1.0), Device("g1", 1, 1000, 1.0)])
    router.handle(1.0, [Arrived(Request(f"{i}", 1.0, 10, 20.0)) for i in range(4)])
    answers = router.explain(1.0)
    assert [answer.request_id for answer in answers if answer.state == "waiting"] == ["2", "3"]
    for answer in answers[:2]:
        assert answer.option_value == max(0.0, *(found.margin for found in answer.devices))
        assert (answer.fits_on, answer.reason) == ((), WaitReason.NO_FREE_SLOT)
    for answer in answers[2:]:
        assert answer.reward == 1.0  # nothing was worth more when it started


def run(policy, fleet, preset, seed, horizon=400, rate=0.5, **paper):
    """Requests finished, slot-periods used and reward (Section 3.1) by the horizon; period model, +-20% predictions."""
    rng = np.random.default_rng(seed)
    count = rng.poisson(rate * horizon)
    output = np.minimum(rng.lognormal(4.8, 0.8, count).astype(int) + 1, 300)
    requests = [
        SimRequest(Request(f"{i:04d}", float(at), int(rng.lognormal(5.5, 1.0)), max(o * rng.uniform(0.8, 1.2), 1.0)), o)
        for i, (at, o) in enumerate(zip(np.sort(rng.integers(0, horizon, count)), output.tolist(), strict=True))
    ]
    config = RouterConfig(policy=policy, preset=preset, paper_lp={"horizon_s": horizon, **paper})
    router = build_priced_router(config, fleet, "period", seed)
    table = simulate(requests, fleet, "period", router, update_s=8.0, sim=SimConfig(horizon_s=horizon)).requests
    router.router.check_invariants()
    held = np.minimum(horizon - table["start_s"], table["output_tokens"]).sum()  # slot-periods of what started
    finished = int((table["status"] == "finished").sum())
    return finished, int(held), reward_of(config.core_objective("period"), table[table["start_s"] <= horizon], horizon)


def reward_of(objective, started, horizon):
    """Sum of r of everything started, at its true length."""
    arrival, start, output = (started[name].to_numpy(float) for name in ("arrival_s", "start_s", "output_tokens"))
    left = horizon + 1 - start
    return float(
        objective.throughput * np.minimum(output, left).sum()
        + objective.e2e * np.maximum(left - output, 0.0).sum()
        + objective.ttft * left.sum()
        + objective.qps * len(started)
        + objective.tail_e2e * (start - arrival + output < objective.e2e_threshold_s).sum()
        + objective.tail_ttft * (start - arrival < objective.ttft_threshold_s).sum()
    )


# Where slots bind and tokens have weight, the longest goes first (reward grows with length and the margin is not
# divided by what a request takes): fewer finish, of the same slot-periods. Least share of FIFO's reward instead.
LONGEST_FIRST = {
    "paper_throughput": 0.99,
    "paper_throughput_mixed": 0.99,
    "paper_tail_mixed": 0.95,
    "paper_balanced": 0.93,
}


@pytest.mark.parametrize("fleet", ["4xB14M40000", "4xB64M8000"])
@pytest.mark.parametrize("preset", PAPER)
def test_no_weights_of_the_paper_idle_the_devices(fleet, preset):
    """Against central FIFO in overload: at least 95% of its slot-periods, and of its requests; where the longest goes
    first, of what the weights pay for."""
    devices = FleetConfig.parse(fleet)
    fifo, paper = (np.array(run(policy, devices, preset, seed=1)) for policy in ("central_fifo", "online_lp_paper"))
    finished, used, reward = paper / fifo
    assert used >= 0.95
    if fleet == "4xB64M8000" or preset not in LONGEST_FIRST:
        assert finished >= 0.95
    else:
        assert reward >= LONGEST_FIRST[preset]


@pytest.mark.slow
@pytest.mark.parametrize("paper", [{"exact": True}, {"learning_rate": 1e-12}, {"learning_rate": 1e-2}])
def test_no_prices_mend_the_order_by_margin(paper):
    """With optimal, no, or large prices still fewer requests finish than under FIFO, and no more reward is made."""
    devices = FleetConfig.parse("4xB14M40000")
    fifo = np.array(run("central_fifo", devices, "paper_throughput_mixed", seed=1))
    ours = np.array(run("online_lp_paper", devices, "paper_throughput_mixed", seed=1, **paper))
    finished, used, reward = ours / fifo
    assert finished < 0.95
    assert used >= 0.95
    assert reward < 1.01


CITED = [f"eq. {n}" for n in range(1, 12)] + [f"Appendix B.{n}" for n in range(1, 5)] + ["Algorithm 1", "Algorithm 2"]


@pytest.mark.parametrize("citation", CITED)
def test_the_papers_equations_are_cited_where_they_are_computed(citation):
    core = Path(__file__).parents[3] / "olp_ray" / "core"
    files = ["paper_prices.py", "packing.py", "policies/online_lp_paper.py"]
    text = " ".join(" ".join((core / name).read_text().split()) for name in files)
    alternatives = {"eq. 5": "eq. 4 and 5", "Algorithm 1": "Algorithms 1 and 2", "Algorithm 2": "Algorithms 1 and 2"}
    assert re.search(rf"{re.escape(citation)}(?!\d)", text) or alternatives.get(citation, citation) in text


def test_assignments_only(route):
    router = route([Device("g0", 2, 1000, 1.0)])
    step = router.handle(1.0, [Arrived(Request("a", 1.0, 10, 20.0))])
    assert [type(d) for d in step.decisions] == [Assign]


def test_a_time_before_the_first_slot_counts_as_in_it(make_settings, limits):
    router = Router([Device("g0", 4, 1000, 1.0)], "online_lp_paper", make_settings(), limits, seed=0)
    step = router.handle(-5.0, [Arrived(Request("r", -5.0, 10, 20.0))])
    assert [decision.request.id for decision in step.decisions] == ["r"]
    assert router.explain(-5.0)[0].reward is not None
