"""Conditional quantiles and means against plain loops over the completions that were learned."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.calibration import Calibration
from olp_ray.errors import SnapshotError

moderate = settings(max_examples=40, deadline=None)
LEVELS = (0.1, 0.5, 0.7, 0.95)


def learn(completions):
    calibration = Calibration()
    for completion in completions:
        calibration.add(*completion)
    return calibration


def completions(seed, count, predictions=(10, 20, 40, 80, 160), spread=2.0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        predicted = int(rng.choice(predictions))
        rows.append((int(rng.integers(0, 300)), predicted, int(rng.integers(1, max(2, spread * predicted)))))
    return rows


def below(edges, x):
    return sum(edge < x for edge in edges)


def plain_bin(rows, predicted, prompt):
    """The completions that speak for this prediction: those of its quarter of predicted lengths, and where quarters
    are fewer than four, of its part of prompt lengths in there, eight bins in all."""
    if len(rows) < 160:
        return rows
    edges = np.unique(np.quantile([row[1] for row in rows], [0.25, 0.5, 0.75]))
    edges = [edge for edge in edges if edge < max(row[1] for row in rows)]
    mine = [row for row in rows if below(edges, row[1]) == below(edges, predicted)]
    cuts = 8 // (len(edges) + 1)
    prompts = np.quantile([row[0] for row in mine or rows], np.arange(1, cuts) / cuts)
    return [row for row in mine if below(prompts, row[0]) == below(prompts, prompt)]


def plain_remaining(rows, decoded, predicted, prompt, level):
    longer = sorted(o / p for _, p, o in plain_bin(rows, predicted, prompt) if o / p > decoded / predicted)
    if not longer:
        return math.ceil(-math.log(1 - level) * max(0.15 * decoded, 1))
    end = math.ceil(predicted * longer[math.ceil(level * len(longer)) - 1])
    return max(end - decoded, 1)


def plain_mean(rows, predicted, prompt):
    prompts, ratio = [row[0] for row in rows], sum(row[2] for row in rows) / sum(row[1] for row in rows)
    parts = 8 if len(rows) >= 160 else 3
    edges = np.quantile(prompts, np.arange(1, parts) / parts)
    part = [row for row in rows if below(edges, row[0]) == below(edges, prompt)]
    prior = 20 * ratio * np.mean([row[1] for row in rows])
    true, said = sum(row[2] for row in part), sum(row[1] for row in part)
    return max(predicted * ratio * (true + prior) / (ratio * said + prior), 1)


def test_under_16_completions_predictions_stand():
    calibration = learn(completions(0, 15))
    predicted = np.array([1.0, 7.4, 7.6, 30.0])
    assert calibration.is_identity
    assert calibration.mean_length(predicted, np.zeros(4)).tolist() == predicted.tolist()
    assert calibration.median_length(predicted, predicted).tolist() == [1, 7, 8, 30]
    assert calibration.remaining(np.array([0.0, 3.0, 0.0, 30.0]), predicted, predicted, 0.7)[:3].tolist() == [1, 5, 8]
    calibration.add(5, 10, 10)
    assert not calibration.is_identity


@pytest.mark.parametrize(("decoded", "expected"), [(30.0, 6), (100.0, 19), (0.0, 2)])
def test_an_overrun_is_exponential_in_what_was_decoded(decoded, expected):
    left = Calibration().remaining(np.array([decoded]), np.array([1.0]) * min(decoded, 1.0), np.array([5.0]), 0.7)
    assert left.tolist() == [expected]


def test_it_is_rebuilt_at_16_then_at_every_32nd_completion():
    calibration, changed, before = Calibration(), [], None
    for i, row in enumerate(completions(1, 200), start=1):
        calibration.add(*row)
        now = calibration.remaining(np.arange(0.0, 60.0, 3.0), np.full(20, 40.0), np.full(20, 150.0), 0.5).tolist()
        if before is not None and now != before:
            changed.append(i)
        before = now
    assert set(changed) <= {16, 32, 64, 96, 128, 160, 192}
    assert {16, 32} <= set(changed)


@moderate
@given(
    seed=st.integers(0, 10**6),
    count=st.sampled_from([16, 32, 96, 160, 192, 512]),
    level=st.sampled_from(LEVELS),
)
def test_remaining_agrees_with_a_plain_loop(seed, count, level):
    rows = completions(seed, count)
    calibration = learn(rows)
    rng = np.random.default_rng(seed)
    predicted = rng.choice([5.0, 10.0, 15.0, 20.0, 40.0, 80.0, 160.0, 400.0], 30)
    decoded, prompt = rng.integers(0, 400, 30).astype(float), rng.integers(0, 300, 30)
    left = calibration.remaining(decoded, predicted, prompt, level)
    plain = [plain_remaining(rows, *entry, level) for entry in zip(decoded, predicted, prompt, strict=True)]
    assert left.tolist() == plain


@moderate
@given(seed=st.integers(0, 10**6), count=st.sampled_from([16, 64, 160, 512]))
def test_lengths_of_new_requests_agree_with_a_plain_loop(seed, count):
    rows = completions(seed, count)
    calibration = learn(rows)
    rng = np.random.default_rng(seed)
    predicted, prompt = rng.choice([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 400.0], 20), rng.integers(0, 300, 20)
    mean, median = calibration.mean_length(predicted, prompt), calibration.median_length(predicted, prompt)
    for j in range(20):
        assert mean[j] == pytest.approx(plain_mean(rows, predicted[j], prompt[j]), rel=1e-12)
        ratios = [o / p for _, p, o in plain_bin(rows, predicted[j], prompt[j])] or [o / p for _, p, o in rows]
        assert median[j] == max(round(predicted[j] * float(np.median(ratios))), 1)


@moderate
@given(seed=st.integers(0, 10**6), count=st.sampled_from([8, 64, 160, 512]))
def test_the_error_left_is_the_spread_of_log_ratios_about_the_medians_of_their_bins(seed, count):
    rows = completions(seed, count)
    spread = []
    for prompt, predicted, output in rows:
        ratios = [o / p for _, p, o in plain_bin(rows, predicted, prompt)]
        spread.append(math.log(output / predicted / np.median(ratios)))
    expected = np.std(spread) if count >= 16 else 0.0
    assert learn(rows).log_error == pytest.approx(expected, rel=1e-9)


def test_where_predictions_say_nothing_prompts_tell_lengths_apart():
    """Long answers to prompts of middle length, as in real chats: a mean of 100 for all is put right by part."""
    rows = [(prompt, 100, 400 if 400 <= prompt < 600 else 25) for prompt in range(0, 1024, 2)]
    calibration = learn(rows)
    prompt, said = np.array([100.0, 450.0, 900.0]), np.full(3, 100.0)
    assert calibration.median_length(said, prompt).tolist() == [25, 400, 25]
    assert calibration.remaining(np.zeros(3), said, prompt, 0.5).tolist() == [25, 400, 25]


def test_equal_predictions_are_never_split():
    calibration = learn([(1, 50, 20 if i % 2 else 90) for i in range(192)])
    assert calibration.median_length(np.array([1.0, 50.0, 200.0]), np.ones(3)).tolist() == [1, 55, 220]


def test_a_wrong_range_is_corrected_in_that_range_only():
    rows = [(1, 10, 10), (1, 100, 300), (1, 20, 20), (1, 200, 200)] * 48
    calibration = learn(rows)
    assert calibration.median_length(np.array([10.0, 20.0, 100.0, 200.0]), np.ones(4)).tolist() == [10, 20, 300, 200]


def test_only_the_last_512_completions_count():
    calibration = learn([(1, 10, 100)] * 512 + [(1, 10, 10)] * 512)
    assert calibration.remaining(np.array([0.0]), np.array([10.0]), np.array([1.0]), 0.99).tolist() == [10]


def test_perfect_predictions_stay_as_they_are():
    calibration = learn([(p, o, o) for p, o, _ in completions(2, 200) for o in (p + 1,)])
    predicted = np.array([1.0, 12.0, 300.0])
    assert calibration.mean_length(predicted, predicted) == pytest.approx(predicted, rel=1e-12)
    assert calibration.median_length(predicted, predicted).tolist() == predicted.tolist()
    assert calibration.remaining(np.array([0.0, 5.0, 299.0]), predicted, predicted, 0.7).tolist() == [1, 7, 1]


@pytest.mark.parametrize("count", [3, 16, 40, 170, 600])
def test_snapshot_goes_on_as_before(count):
    rows = completions(3, count + 80)
    one, other = learn(rows[:count]), Calibration()
    other.restore(one.snapshot())
    decoded, predicted = np.arange(0.0, 200.0, 5.0), np.full(40, 40.0)
    for row in [None, *rows[count:]]:
        for calibration in (one, other):
            if row is not None:
                calibration.add(*row)
        left = [calibration.remaining(decoded, predicted, decoded, 0.7) for calibration in (one, other)]
        assert np.array_equal(*left)
        assert one.log_error == other.log_error
        assert np.array_equal(one.mean_length(predicted, decoded), other.mean_length(predicted, decoded))


def test_snapshot_of_another_version_is_refused():
    calibration = learn(completions(4, 20))
    with pytest.raises(SnapshotError, match="version 2"):
        calibration.restore({**calibration.snapshot(), "version": 2})
    assert not calibration.is_identity
