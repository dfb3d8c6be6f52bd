"""Exact clocks: closed forms equal sums of single iterations, and times convert without drift."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim.latency import IterationTime, Stretch, to_fs, to_s

counts = st.integers(0, 300)


@given(time_s=st.integers(0, 10**7))
def test_whole_seconds_convert_exactly(time_s: int) -> None:
    assert to_fs(float(time_s)) == time_s * 10**15
    assert to_s(to_fs(float(time_s))) == time_s


@given(time_s=st.floats(0, 1e6))
def test_conversion_is_within_half_a_femtosecond(time_s: float) -> None:
    numerator, denominator = time_s.as_integer_ratio()
    assert abs(to_fs(time_s) * denominator - numerator * 10**15) * 2 <= denominator


@given(first=st.integers(1, 10**14), rise=st.integers(0, 10**12), iterations=counts)
def test_duration_is_the_sum_of_iterations(first: int, rise: int, iterations: int) -> None:
    assert Stretch(first, rise).duration_fs(iterations) == sum(first + i * rise for i in range(iterations))


@given(first=st.integers(10**9, 10**14), rise=st.integers(0, 10**12), span=st.integers(0, 10**18))
def test_iterations_within_is_the_inverse_of_duration(first: int, rise: int, span: int) -> None:
    stretch = Stretch(first, rise)
    count = stretch.iterations_within(span)
    assert stretch.duration_fs(count) <= span < stretch.duration_fs(count + 1)


@pytest.mark.parametrize("name", DEVICE_KINDS)
def test_iteration_time_is_the_roofline_of_the_table(name: str) -> None:
    kind = DEVICE_KINDS[name]
    fit = kind.roofline
    decode, kv, prefill, prefix = 100, 90_000, 412, 1000
    pairs = prefill * (prefix + prefill / 2)
    linear = fit.c_tok * (decode + prefill)
    expected_ms = fit.c0 + max(fit.w, linear) + fit.c_kv * kv + fit.c_pairs * pairs + fit.c_batch * decode + 1.5
    got_ms = IterationTime.of_kind(kind).iteration_fs(decode, kv, prefill, prefill * (2 * prefix + prefill)) / 1e12
    assert math.isclose(got_ms, expected_ms, rel_tol=1e-6)


def test_a_small_batch_pays_for_reading_the_weights() -> None:
    time = IterationTime.of_kind(DEVICE_KINDS["a100-8b"])
    assert time.iteration_fs(1, 0, 0, 0) - time.sequence == time.iteration_fs(2, 0, 0, 0) - 2 * time.sequence


def test_twice_the_speed_takes_half_the_time() -> None:
    kind = DEVICE_KINDS["h100-8b"]
    slow, fast = IterationTime.of_kind(kind), IterationTime.of_kind(kind).scaled(2.0)
    args = (64, 50_000, 256, 256 * 1256)
    assert math.isclose(slow.iteration_fs(*args), 2 * fast.iteration_fs(*args), rel_tol=1e-5)
