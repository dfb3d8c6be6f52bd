"""A prefill pool is a first-come-first-served queue with known service times."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim.latency import IterationTime
from olp_ray.sim.prefill_pool import FreePrefill, PrefillPool, prefill_fs

TIME = IterationTime.of_kind(DEVICE_KINDS["a100-8b"])


@given(prompt=st.integers(1, 5000), chunk=st.sampled_from([64, 512, 2048]))
def test_chunks_add_up(prompt: int, chunk: int) -> None:
    total, done = 0, 0
    while done < prompt:
        tokens = min(chunk, prompt - done)
        total += TIME.iteration_fs(0, 0, tokens, tokens * (2 * done + tokens))
        done += tokens
    assert prefill_fs(TIME, chunk, prompt) == total


@given(
    jobs=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 3000)), min_size=1, max_size=30), devices=st.integers(1, 4)
)
def test_first_come_first_served_by_hand(jobs: list[tuple[float, int]], devices: int) -> None:
    pool = PrefillPool(devices, TIME, 512)
    free = [0.0] * devices
    for now_s, prompt in sorted(jobs):
        first_free = min(range(devices), key=free.__getitem__)
        free[first_free] = max(now_s, free[first_free]) + prefill_fs(TIME, 512, prompt) / 1e15
        assert math.isclose(pool.submit(prompt, now_s), free[first_free], rel_tol=1e-12)


def test_an_empty_prompt_takes_an_iteration() -> None:
    assert prefill_fs(TIME, 512, 0) == prefill_fs(TIME, 512, 1) > 0


def test_free_prefill_takes_no_time() -> None:
    assert FreePrefill().submit(5000, 3.25) == 3.25
