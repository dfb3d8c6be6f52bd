"""Jobs in parallel processes, with progress inside each of them. What a job does is the caller's."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from types import MappingProxyType
from typing import Any, TypeVar

Tell = Callable[[float, int], None]  # (done, in all)
Result = TypeVar("Result")
POLL_S = 0.5


def run_jobs(
    jobs: Sequence[Callable[[Tell], Result]],
    workers: int | None,
    tell: Tell = lambda done, total: None,
    waits: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[int, Result]]:
    """(index, result) of every job as it ends, from `workers` processes, one per CPU by default; 1 stays in this one.

    A job is given a function that takes its own progress. tell is told jobs done, in parts, of all. waits has, for a
    job that may not begin before another one has ended, that one; what others wait for begins first.
    """
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    if workers == 1:
        for index, job in enumerate(jobs):
            yield index, job(_after(index, len(jobs), tell))
        return
    context = multiprocessing.get_context("spawn")
    shares = context.Array("d", len(jobs), lock=False)
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_share, initargs=(shares,)) as pool:
        free = sorted(set(range(len(jobs))) - set(waits), key=lambda index: index not in waits.values())
        running = {pool.submit(_run, index, jobs[index]): index for index in free}
        try:
            while running:
                for future in wait(running, POLL_S, FIRST_COMPLETED).done:
                    ended, result = running.pop(future), future.result()
                    running |= {pool.submit(_run, i, jobs[i]): i for i, first in waits.items() if first == ended}
                    yield ended, result
                    shares[ended] = 1.0
                tell(sum(shares), len(jobs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _after(before: int, jobs: int, tell: Tell) -> Tell:
    return lambda done, total: tell(before + done / max(1, total), jobs)


_shares: Any = None  # of a worker process: how far each job is, 0 to 1


def _share(shares: Any) -> None:
    global _shares
    _shares = shares
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that was killed tells nobody: without this its workers would wait for work for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _run(index: int, job: Callable[[Tell], Result]) -> Result:
    def tell(done: float, total: int) -> None:
        _shares[index] = done / max(1, total)

    return job(tell)
