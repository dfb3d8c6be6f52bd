"""Jobs in processes and in this one: the same results, and progress that rises to all of them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def span(number: int, tell: Tell) -> tuple[float, float]:
    began = time.monotonic()
    time.sleep(0.3)
    return began, time.monotonic()


def test_a_job_waits_for_another_one_to_end() -> None:
    """One clock for all processes; the third job is waited for and begins first."""
    found = dict(run_jobs([functools.partial(span, n) for n in range(4)], 2, waits={0: 2, 3: 0}))
    assert sorted(found) == [0, 1, 2, 3]
    assert found[2][1] <= found[0][0]
    assert found[0][1] <= found[3][0]
    assert found[1][0] < found[0][1]  # what waits for nothing does not wait
    assert len(dict(run_jobs([functools.partial(span, n) for n in range(2)], 1, waits={1: 0}))) == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_comes_through(workers: int) -> None:
    with pytest.raises(ValueError, match="no -1"):
        dict(run_jobs([functools.partial(square, n) for n in (2, -1)], workers))


def linger(folder: str, number: int, tell: Tell) -> None:
    (Path(folder) / str(os.getpid())).touch()
    time.sleep(0.0 if number else 600.0)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_busy_or_idle_end_with_their_parent(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        "import functools, sys; from tests.sweep.test_parallel import linger, run_jobs\n"
        "if __name__ == '__main__':\n"
        "    dict(run_jobs([functools.partial(linger, sys.argv[1], n) for n in (0, 1)], 2))\n"
    )
    (tmp_path / "pids").mkdir()
    path = tmp_path / "main.py"
    path.write_text(script)
    root = Path(__file__).parents[2]
    parent = subprocess.Popen(
        [sys.executable, str(path), str(tmp_path / "pids")], env=os.environ | {"PYTHONPATH": str(root)}
    )
    until = time.monotonic() + 60
    while len(list((tmp_path / "pids").iterdir())) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    workers = [int(entry.name) for entry in (tmp_path / "pids").iterdir()]
    parent.send_signal(number)
    parent.wait()
    while any(is_alive(pid) for pid in workers):
        assert time.monotonic() < until
        time.sleep(0.05)
