"""Jobs in processes and in this one: the same results, and progress that rises to all of them."""

from __future__ import annotations

import functools

import pytest

from olp_ray.sweep.parallel import Tell, run_jobs


def square(number: int, tell: Tell) -> int:
    tell(1, 2)
    if number < 0:
        raise ValueError(f"no {number}")
    return number * number


@pytest.mark.parametrize("workers", [1, 2])
def test_results_and_progress(workers: int) -> None:
    told: list[float] = []
    jobs = [functools.partial(square, n) for n in range(5)]
    found = dict(run_jobs(jobs, workers, lambda done, total: told.append(done / total)))
    assert found == {n: n * n for n in range(5)}
    assert told == sorted(told)
    assert told[-1] == pytest.approx(0.9 if workers == 1 else 1.0)  # alone, the caller knows of the last one's end


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_through(workers: int) -> None:
    with pytest.raises(ValueError, match="no -1"):
        dict(run_jobs([functools.partial(square, n) for n in (2, -1)], workers))
