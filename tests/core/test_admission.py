"""The greedy pass against one written out pair by pair on plain plans."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.admission import admit_in_order, no_admission, plain_candidates
from olp_ray.core.calibration import Calibration
from olp_ray.core.forecast import Forecast
from olp_ray.core.ledger import Ledger
from olp_ray.core.types import AssignmentKey, Device, Request, Stage


@dataclasses.dataclass
class Plan:
    """A device as a list of (KV tokens now, steps left)."""

    slots: int
    kv_tokens: int
    held: list

    def takes(self, prompt, steps, after=0):
        steps = min(steps, max(self.kv_tokens - prompt, 1))
        for i in range(after + 1, after + steps + 1):
            alive = [kv + i for kv, left in self.held if left >= i]
            if len(alive) + 1 > self.slots or sum(alive) + prompt + i - after > self.kv_tokens:
                return False
        return True

    def first_fit(self, prompt, steps):
        last_end = max((left for _, left in self.held), default=0)
        return next((after for after in range(1, last_end + 1) if self.takes(prompt, steps, after)), np.inf)

    @property
    def load(self):
        return sum(kv for kv, _ in self.held) / self.kv_tokens

    @property
    def utilisation(self):
        return max(len(self.held) / self.slots, self.load)


def plain_greedy(
    plans, jobs, order, allowed, cost, load_cost, crowding_costs, may_reserve, rotation, head_of_line, reservations
):
    """crowding_costs(j, g, others) are what the jobs `others`, placed on g before, cost job j there."""
    placed, reserved = [], {}
    for j in order:
        prompt, steps = jobs[j]
        fitting = [
            g
            for g, plan in enumerate(plans)
            if allowed[g, j] and plan.takes(prompt, steps) and (g not in reserved or steps <= max(1, reserved[g][1]))
        ]
        if fitting:
            rank = {}
            for g in fitting:
                crowding = crowding_costs(j, g, [other for other, at in placed if at == g])
                price = sum(crowding, start=cost[g, j] + load_cost[g, j] * plans[g].load)
                rank[g] = (price, plans[g].utilisation, (g - rotation) % len(plans))
            g = min(fitting, key=rank.get)
            plans[g].held.append((prompt, steps))
            placed.append((j, g))
            rotation += 1
        elif head_of_line:
            break
        elif may_reserve[j] and len(reserved) < reservations:
            waits = [
                (plans[g].first_fit(prompt, steps), plans[g].load, g)
                for g in range(len(plans))
                if allowed[g, j] and g not in reserved
            ]
            if waits and min(waits)[0] < np.inf:
                reserved[min(waits)[2]] = (j, min(waits)[0])
    return placed, reserved


def forecast_of(plans):
    devices = [Device(f"g{g}", plan.slots, plan.kv_tokens, 1.0) for g, plan in enumerate(plans)]
    ledger = Ledger(devices)
    for g, plan in enumerate(plans):
        for i, (kv, left) in enumerate(plan.held):
            key = AssignmentKey(f"{g}-{i}", Stage.MIXED, f"g{g}", 0, 0)
            ledger.reserve(key, Request(key.request_id, 0.0, kv, float(left)), 0.0)
    return Forecast(ledger, Calibration(), 0.0, 0.7, prefill_ahead_s=1.0)


def fill_in(records, **fields):
    for name, values in fields.items():
        records[name] = values


holding = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 30)), max_size=4)
fleets = st.lists(st.tuples(st.integers(1, 5), st.integers(60, 300), holding), min_size=1, max_size=4)


@settings(max_examples=120, deadline=None)
@given(
    fleet=fleets,
    jobs=st.lists(st.tuples(st.integers(0, 90), st.integers(1, 50)), min_size=1, max_size=10),
    seed=st.integers(0, 999),
    head_of_line=st.booleans(),
    reservations=st.integers(0, 3),
    rotation=st.integers(0, 9),
)
def test_the_pass_agrees_with_one_pair_at_a_time(fleet, jobs, seed, head_of_line, reservations, rotation):
    rng = np.random.default_rng(seed)
    plans = [Plan(slots, kv_tokens, list(held[:slots])) for slots, kv_tokens, held in fleet]
    shape = (len(plans), len(jobs))
    allowed = rng.random(shape) < 0.8
    cost, value = rng.integers(0, 3, shape).astype(float), rng.integers(0, 3, shape).astype(float)
    load_price, life_s = rng.integers(0, 2, len(plans)).astype(float), rng.integers(0, 2, shape).astype(float)
    may_reserve = rng.random(len(jobs)) < 0.7
    order = rng.permutation(len(jobs))
    prompts, steps = (column.copy() for column in np.array(jobs, dtype=float).T)
    per_sequence_s, per_kv_token_s = rng.integers(0, 3, len(plans)) / 4, rng.integers(0, 2, len(plans)) / 128
    rate, held = 2.0 ** rng.integers(0, 4, len(plans)), rng.integers(0, 64, len(jobs)).astype(float)
    step_cost, wait_cost = rng.integers(0, 2, len(jobs)) / 2, rng.integers(0, 2, len(jobs)) / 8
    wanted, forecast = plain_candidates(prompts, steps, allowed), forecast_of(plans)
    fill_in(wanted.starts, cost=cost, value=value, life_s=life_s)
    fill_in(wanted.requests, may_reserve=may_reserve, mean_kv_tokens=held, step_cost=step_cost, wait_cost=wait_cost)
    fill_in(
        forecast.begun.devices,
        load_price=load_price,
        per_sequence_s=per_sequence_s,
        per_kv_token_s=per_kv_token_s,
        prefill_tokens_per_s=rate,
    )

    def crowding_costs(j, g, others):
        slower_s = sum(per_sequence_s[g] + per_kv_token_s[g] * held[other] for other in others)
        return step_cost[j] * slower_s, wait_cost[j] * sum(prompts[other] for other in others) / rate[g]

    options = {"head_of_line": head_of_line, "reservations": reservations}
    done = admit_in_order(forecast, wanted, order, no_admission(len(plans), rotation), **options)
    load_cost = load_price[:, None] * life_s
    placed, reserved = plain_greedy(
        plans, jobs, order, allowed, cost - value, load_cost, crowding_costs, may_reserve, rotation, **options
    )
    assert done.placed == placed
    assert done.rotation == rotation + len(placed)
    if any(len(plan.held) < plan.slots for plan in plans):  # once all are full, the pass ends without looking further
        assert done.reserved == reserved


@pytest.mark.parametrize("rotation", range(3))
def test_ties_go_round(rotation):
    plans = [Plan(9, 1000, []) for _ in range(3)]
    six = np.full(6, 5.0)
    wanted = plain_candidates(six, six, np.ones((3, 6), dtype=bool))
    done = admit_in_order(forecast_of(plans), wanted, np.arange(6), no_admission(3, rotation))
    first = [(rotation + k) % 3 for k in range(3)]
    assert [g for _, g in done.placed] == first * 2


@pytest.mark.parametrize(("steps", "starts"), [(20, True), (21, False)])
def test_a_reserved_device_takes_only_what_ends_in_time(steps, starts):
    """The first candidate needs the whole device, free in 20 steps; the second would fit beside its resident now."""
    plans = [Plan(4, 100, [(30, 20)])]
    prompts, lengths = np.array([85.0, 5.0]), np.array([10.0, steps])
    wanted = plain_candidates(prompts, lengths, np.ones((1, 2), dtype=bool), may_reserve=True)
    done = admit_in_order(forecast_of(plans), wanted, np.arange(2), no_admission(1, 0), reservations=1)
    assert done.reserved == {0: (0, 20.0)}
    assert done.placed == [(1, 0)] * starts
