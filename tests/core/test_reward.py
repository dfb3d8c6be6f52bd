"""Reward and urgency against the same sums written out for one request and device."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.kernels import worth
from olp_ray.core.reward import Terms, start_value, thresholds, weights_of
from olp_ray.core.types import Objective

W, TAU, TICK = 200.0, 10.0, 1.0
weights = st.tuples(*[st.sampled_from([0.0, 0.1, 1.0, 3.0])] * 6).filter(any)
times = st.floats(0, 300)
requests = st.tuples(times, st.floats(1, 90), st.sampled_from([0.5, 1.0, 2.0]), st.floats(0, 20), st.floats(20, 120))


def plain_value(o, waited_s, delay_s, first_s, life_s, tokens, weight):
    ttft_s, e2e_s = waited_s + delay_s + first_s, waited_s + delay_s + life_s
    value = o.throughput * tokens + o.qps + o.e2e * max(W - e2e_s, 0) + o.ttft * max(W - ttft_s, 0)
    value += o.tail_e2e if e2e_s < o.e2e_threshold_s else 0
    value += o.tail_ttft if ttft_s < o.ttft_threshold_s else 0
    return weight * value


def plain_urgency(o, waited_s, first_s, life_s, tokens, weight):
    lost = (o.e2e + o.ttft) * TAU + (o.qps + o.throughput * tokens) * TAU / (W + TAU)
    for zeta, limit_s, at_s in (
        (o.tail_ttft, o.ttft_threshold_s, waited_s + first_s),
        (o.tail_e2e, o.e2e_threshold_s, waited_s + life_s),
    ):
        if at_s < limit_s:
            lost += zeta * math.exp(-(limit_s - TICK - at_s) / TAU)
    return weight * lost


def urgency(objective, window_s, urgency_s, tick_s, terms, first_s, life_s):
    """A of each request on each device, (J, G)."""
    columns = (terms.waited_s, terms.output_tokens, terms.weight, terms.e2e_threshold_s, terms.ttft_threshold_s)
    pairs = np.broadcast_arrays(*columns, first_s, life_s)
    about = zip(*(pair.ravel().tolist() for pair in pairs), strict=True)
    lost = [worth.urgency(weights_of(objective), window_s, urgency_s, tick_s, *row) for row in about]
    return np.reshape(lost, pairs[0].shape)


def terms_of(objective, rows):
    waited_s, tokens, weight = (np.array([row[c] for row in rows]) for c in range(3))
    nothing = np.full(len(rows), np.nan)
    return Terms(waited_s, tokens, weight, *thresholds(objective, nothing, nothing)).column(1)


@settings(max_examples=60, deadline=None)
@given(chosen=weights, rows=st.lists(requests, min_size=1, max_size=6), delay_s=st.sampled_from([0.0, 16.0, 64.0]))
def test_reward_and_urgency_agree_with_the_plain_sums(make_objective, chosen, rows, delay_s):
    objective = make_objective(*chosen)
    first_s = np.array([[row[3], 2 * row[3]] for row in rows])
    life_s = np.array([[row[4], 3 * row[4]] for row in rows])
    terms = terms_of(objective, rows)
    value = start_value(objective, W, terms, delay_s, first_s, life_s)
    lost = urgency(objective, W, TAU, TICK, terms, first_s, life_s)
    for j, (waited_s, tokens, weight, *_) in enumerate(rows):
        for g in range(2):
            plain = plain_value(objective, waited_s, delay_s, first_s[j, g], life_s[j, g], tokens, weight)
            assert value[j, g] == pytest.approx(plain, rel=1e-12)
            plain = plain_urgency(objective, waited_s, first_s[j, g], life_s[j, g], tokens, weight)
            assert lost[j, g] == pytest.approx(plain, rel=1e-9)


def test_a_deadline_is_worth_most_at_its_last_useful_start_and_nothing_after(make_objective):
    objective = make_objective(tail_ttft=1, t2=49)
    rows = [(waited_s, 5.0, 1.0) for waited_s in (0, 38, 48, 49, 500)]
    lost = urgency(objective, W, TAU, TICK, terms_of(objective, rows), 0.0, np.full((5, 1), 5.0))[:, 0]
    assert lost[:3].tolist() == pytest.approx([math.exp(-4.8), math.exp(-1), 1])
    assert lost[3:].tolist() == [0, 0]


def test_own_thresholds_come_first(make_objective):
    objective = make_objective(tail_ttft=1, t1=100, t2=49)
    e2e_s, ttft_s = thresholds(objective, np.array([np.nan, 7.0]), np.array([3.0, np.nan]))
    assert e2e_s.tolist() == [100, 7]
    assert ttft_s.tolist() == [3, 49]


def test_share_of_deadlines(make_objective):
    def share(objective):
        return worth.deadline_share(weights_of(objective), W, 50.0, 100.0)

    assert share(make_objective(tail_e2e=1, tail_ttft=1)) == 1
    assert share(make_objective(e2e=1)) == 0
    mixed = make_objective(throughput=0.1, e2e=0.01, qps=5, tail_ttft=3)
    assert share(mixed) == pytest.approx(3 / (3 + 50 * 0.01 + (5 + 0.1 * 100) * 50 / 250))


def test_joint_deadlines_earn_only_where_both_can_be_met():
    joint = Objective(0, 0, 0, 0.5, 2.0, 3.0, 100.0, 10.0, joint_deadlines=True)
    terms = Terms(
        np.array([5.0, 5.0, 20.0]), np.array([50.0, 99.0, 50.0]), np.ones(3), np.full(3, 100.0), np.full(3, 10.0)
    )
    life_s = terms.output_tokens
    assert start_value(joint, 1000.0, terms, 0.0, 0.0, life_s).tolist() == [5.5, 0.5, 0.5]
    lost = urgency(joint, 1000.0, 10.0, 1.0, terms, 0.0, life_s)
    apart = urgency(dataclasses.replace(joint, joint_deadlines=False), 1000.0, 10.0, 1.0, terms, 0.0, life_s)
    assert lost[0] == apart[0] > lost[1] == lost[2] == pytest.approx(0.5 * 10 / 1010)
