"""Feasibility against a plain simulation of every iteration to come, in whole tokens and steps."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.calibration import Calibration
from olp_ray.core.forecast import Forecast, expected_occupancy
from olp_ray.core.ledger import Ledger
from olp_ray.core.types import AssignmentKey, Device, Request, Stage

moderate = settings(max_examples=60, deadline=None)
LEVEL = 0.7
AHEAD_S = 2.0


@dataclasses.dataclass(frozen=True)
class Resident:
    prompt: int
    predicted: int
    decoded: int

    def steps(self):
        """Planned remaining iterations without calibration."""
        if self.predicted > self.decoded:
            return self.predicted - self.decoded
        return math.ceil(-math.log(1 - LEVEL) * max(0.15 * self.decoded, 1))


@dataclasses.dataclass(frozen=True)
class Plan:
    """A device as plain lists: (KV tokens now, steps left) of each resident."""

    residents: tuple[tuple[float, float], ...]
    slots: float
    kv_tokens: float

    def kv_at(self, iteration):
        return sum(kv + iteration for kv, steps in self.residents if steps >= iteration)

    def count_at(self, iteration):
        return sum(steps >= iteration for _, steps in self.residents)

    def takes(self, prompt, steps, after=0):
        """Whether a candidate that starts after `after` iterations never meets a limit."""
        for i in range(after + 1, after + steps + 1):
            if self.count_at(i) + 1 > self.slots or self.kv_at(i) + prompt + (i - after) > self.kv_tokens:
                return False
        return True

    def with_one_more(self, prompt, steps):
        return dataclasses.replace(self, residents=(*self.residents, (prompt, steps)))


def build(residents, slots, kv_tokens, block_tokens=1, external=(0, 0)):
    """A ledger of two devices; the second is the one described, the first holds something else."""
    ledger = Ledger([Device("other", 9, 10**6, 1.0), Device("g", slots, kv_tokens, 1.0, block_tokens=block_tokens)])
    other = AssignmentKey("x", Stage.MIXED, "other", 0, 0)
    ledger.reserve(other, Request("x", 0.0, 7, 9.0), 0.0)
    for i, resident in enumerate(residents):
        key = AssignmentKey(f"r{i}", Stage.MIXED, "g", 0, 0)
        ledger.reserve(key, Request(f"r{i}", 0.0, resident.prompt, float(resident.predicted)), 0.0)
        ledger.start(key, 0.0)
        ledger.progress([key], np.array([resident.decoded]), 5.0)
    ledger.set_external("g", *external)
    plan = Plan(
        tuple((r.prompt + block_tokens - 1 + r.decoded, r.steps()) for r in residents),
        slots - external[0],
        kv_tokens - external[1],
    )
    return Forecast(ledger, Calibration(), 5.0, LEVEL, AHEAD_S), plan


residents = st.lists(st.builds(Resident, st.integers(0, 60), st.integers(1, 60), st.integers(0, 80)), max_size=6)
devices = {
    "residents": residents,
    "slots": st.integers(1, 8),
    "kv_tokens": st.integers(20, 600),
    "block_tokens": st.sampled_from([1, 16]),
    "external": st.tuples(st.integers(0, 3), st.integers(0, 80)),
}
candidates = st.lists(st.tuples(st.integers(0, 80), st.integers(1, 90)), min_size=1, max_size=12)


def cut(plan, prompt, steps):
    """A prediction too long for the empty device counts as what fits there."""
    return min(steps, max(plan.kv_tokens - prompt, 1))


def check_fits(forecast, plan, wanted, block_tokens):
    prompts, steps = np.array(wanted, dtype=float).T
    fits = forecast.fits(1, prompts, steps)
    for j, (prompt, length) in enumerate(wanted):
        held = prompt + block_tokens - 1
        assert bool(fits[j]) == plan.takes(held, cut(plan, held, length)), (prompt, length)
    return fits


@moderate
@given(**devices, wanted=candidates)
def test_fits_agrees_with_every_iteration_simulated(residents, slots, kv_tokens, block_tokens, external, wanted):
    forecast, plan = build(residents, slots, kv_tokens, block_tokens, external)
    check_fits(forecast, plan, wanted, block_tokens)


@moderate
@given(**devices, wanted=candidates, coming=candidates)
def test_admitted_candidates_count_from_then_on(residents, slots, kv_tokens, block_tokens, external, wanted, coming):
    forecast, plan = build(residents, slots, kv_tokens, block_tokens, external)
    for prompt, steps in coming:
        if check_fits(forecast, plan, [(prompt, steps)], block_tokens)[0]:
            forecast.admit(1, float(prompt), float(steps))
            plan = plan.with_one_more(prompt + block_tokens - 1, steps)
            assert forecast.occupied_slots[1] == len(plan.residents) + external[0]
            assert forecast.kv_now[1] == sum(kv for kv, _ in plan.residents) + external[1]
            check_fits(forecast, plan, wanted, block_tokens)


@moderate
@given(**devices, wanted=candidates)
def test_earliest_fit_is_the_first_start_at_which_the_candidate_fits(
    residents, slots, kv_tokens, block_tokens, external, wanted
):
    forecast, plan = build(residents, slots, kv_tokens, block_tokens, external)
    for prompt, steps in wanted:
        held = prompt + block_tokens - 1
        length = cut(plan, held, steps)
        if plan.takes(held, length):
            continue  # asked only for what does not fit now
        last_end = max((steps_left for _, steps_left in plan.residents), default=0)
        every_start = range(1, int(last_end) + 1)
        expected = next((after for after in every_start if plan.takes(held, length, after)), math.inf)
        assert forecast.earliest_fit(1, float(prompt), float(steps)) == expected


def test_exact_peaks_of_the_worked_example():
    residents = [Resident(100, 100, 90)] * 3
    forecast, plan = build(residents, 4, 1000)
    assert plan.kv_at(10) + 100 + 10 == 710  # with the candidate a; after that only a is left
    assert forecast.fits(1, np.array([100.0]), np.array([32.0]))[0]
    limit, _ = build(residents, 4, 710)
    assert limit.fits(1, np.array([100.0]), np.array([32.0]))[0]
    below, _ = build(residents, 4, 709)
    assert not below.fits(1, np.array([100.0]), np.array([32.0]))[0]
    forecast.admit(1, 100.0, 32.0)
    assert forecast.earliest_fit(1, 300.0, 64.0) == 10


def test_a_prediction_too_long_for_the_empty_device_still_starts():
    forecast, _ = build([], 4, 100)
    assert forecast.fits(1, np.array([40.0]), np.array([1e6]))[0]
    assert not forecast.fits(1, np.array([100.0]), np.array([1.0]))[0]
    assert forecast.earliest_fit(1, 100.0, 1.0) == math.inf


def test_a_draining_device_takes_nothing():
    ledger = Ledger([Device("g", 4, 100, 1.0)])
    ledger.drain("g")
    forecast = Forecast(ledger, Calibration(), 0.0, LEVEL, AHEAD_S)
    assert forecast.takes_more.tolist() == [False]
    assert forecast.utilisation.tolist() == [1]
    assert not forecast.fits(0, np.array([1.0]), np.array([1.0]))[0]
    assert forecast.earliest_fit(0, 1.0, 1.0) == math.inf


def test_utilisation_is_of_the_fuller_resource():
    forecast, _ = build([Resident(30, 9, 0)], 4, 100, external=(1, 10))
    assert forecast.utilisation[1] == 0.5
    forecast.admit(1, 25.0, 2.0)
    assert forecast.utilisation[1] == 0.75
    forecast.admit(1, 25.0, 2.0)
    assert forecast.utilisation[1] == 1.0


def test_the_ledger_is_left_as_it_is():
    ledger = Ledger([Device("g", 4, 100, 1.0)])
    forecast = Forecast(ledger, Calibration(), 0.0, LEVEL, AHEAD_S)
    for _ in range(12):
        forecast.admit(0, 1.0, 1.0)
    assert len(ledger) == 0
    assert ledger.kv_now(0.0).tolist() == [0]
    assert forecast.occupied_slots.tolist() == [12]


# -- expected occupancy -----------------------------------------------------------------------------------------------


def learned(seed, completions=200):
    """A calibration that is no longer the identity."""
    rng, calibration = np.random.default_rng(seed), Calibration()
    for predicted in rng.integers(5, 60, completions):
        calibration.add(rng.integers(1, 50), predicted, rng.integers(1, 2 * predicted))
    return calibration


@moderate
@given(
    residents=residents,
    external=st.tuples(st.integers(0, 3), st.integers(0, 80)),
    step_s=st.sampled_from([0.5, 1.0, 1.6]),
    seed=st.none() | st.integers(0, 50),
)
def test_expected_occupancy_agrees_with_a_plain_loop(residents, external, step_s, seed):
    bucket_s, buckets, now_s = 4.0, 10, 5.0
    calibration = Calibration() if seed is None else learned(seed)
    ledger = Ledger([Device("empty", 2, 100, 1.0), Device("g", 9, 900, step_s, block_tokens=4)])
    for i, resident in enumerate(residents):
        key = AssignmentKey(f"r{i}", Stage.MIXED, "g", 0, 0)
        ledger.reserve(key, Request(f"r{i}", 0.0, resident.prompt, float(resident.predicted)), 0.0)
        ledger.progress([key], np.array([resident.decoded]), now_s)
    ledger.set_external("g", *external)
    occupied = expected_occupancy(ledger, calibration, now_s, bucket_s, buckets)
    levels = (0.5,) if seed is None else (0.1, 0.3, 0.5, 0.7, 0.9)
    plain = np.tile(np.array(external, dtype=float)[:, None], (1, buckets))
    for resident in residents:
        for level in levels:
            left = calibration.remaining(
                *(np.array([float(x)]) for x in (resident.decoded, resident.predicted, resident.prompt)), level
            )[0]
            for h in range(buckets):
                if left * step_s > h * bucket_s:
                    plain[0, h] += 1 / len(levels)
                    kv = resident.prompt + 3 + resident.decoded + (h + 1) * bucket_s / step_s
                    plain[1, h] += kv / len(levels)
    assert occupied[0].tolist() == np.zeros((2, buckets)).tolist()
    assert occupied[1] == pytest.approx(plain, rel=1e-9, abs=1e-9)
