"""The `Pricer` whose blocks live in price-shard actors: the rounds of an update run in a thread beside admission.

Here lives carrying, waiting and noticing shards that do not answer; prices and winners are the core's. Under a
simulator's clock (`clock` None) `collect` waits for every block. Live, `collect` takes what is there: a block that is
late or broken misses the update, its devices keep their last tables, and it is rebuilt from those.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Literal

import numpy as np
from ray.exceptions import ActorDiedError, RayActorError

from olp_ray.core.prices import SampleColumn, Winners, pick_winners, rows_of, split_devices
from olp_ray.core.types import PricesReady, PriceWork
from olp_ray.errors import PriceError, RuntimeShellError
from olp_ray.runtime.price_update import Home, PricerStatus, Shard, Update, check_bids, check_tables
from olp_ray.runtime.shard_pool import ShardPool, future_of

_log = logging.getLogger(__name__)
_SIMULATED_TIMEOUT_S = 120.0  # under a simulator's clock a shard that is silent for longer is an error
_START_TIMEOUT_S = 30.0  # a new process is not given up before this


class RayPricer:
    """Carries price work to the shards of `pool`; clock is the driver's, None when the driver's clock is simulated."""

    def __init__(self, pool: ShardPool, clock: Callable[[], float] | None = None, max_missed_updates: int = 3) -> None:
        self._pool = pool
        self._clock = clock
        self._max_missed = max_missed_updates
        self._shards = self._all_shards()
        self._homes: list[Home] = []
        self._layout = 0
        self._current: Update | None = None
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._missed: Counter[int] = Counter()
        self._taken: dict[int, int] = {}  # last update of each block whose tables were taken
        self._update_id = -1
        self._errors: Counter[str] = Counter()
        self._rounds_s = 0.0
        self._round_times: deque[float] = deque(maxlen=10_000)
        self._inbox: queue.SimpleQueue[Update | Literal["start"] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="olp-ray-prices", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Have a pool started that is not yet, beside whatever goes on; until then all updates are missed."""
        self._inbox.put("start")

    def wait_until_up(self) -> None:
        """Return when every shard's process has answered or is given up; until then updates would be missed."""
        wait([shard.unanswered for shard in self._shards if shard.unanswered is not None], timeout=_START_TIMEOUT_S)

    def submit(self, work: PriceWork) -> None:
        """Start the rounds of this update and return at once."""
        if work.start_prices is not None:
            self._layout += 1
            self._homes = [
                Home(self._layout, indices, work.start_prices[indices], work.grid)
                for indices in split_devices(len(work.device_ids), len(self._pool))
            ]
        if not self._homes:
            raise PriceError(f"update {work.update_id} comes without start prices, and no block was built before")
        self._counts["updates"] += 1
        self._current = Update(work, list(self._homes), self._clock() if self._clock is not None else 0.0)
        self._inbox.put(self._current)

    def collect(self) -> list[PricesReady]:
        """The tables of the update that was submitted last, one record per block that made it, in block order.

        Under a simulator's clock it waits, and raises `RuntimeShellError` when a shard failed.
        """
        update, self._current = self._current, None
        if update is None:
            return []
        if self._clock is None:
            update.finished.wait(_SIMULATED_TIMEOUT_S)
        with self._lock:
            update.closed = True
        self._settle(update)
        work = update.work
        return [
            PricesReady(work.update_id, work.next_grid, tuple(work.device_ids[i] for i in home.device_indices), tables)
            for block, home in enumerate(update.homes)
            if (tables := update.tables.get(block)) is not None
        ]

    @property
    def shard_handles(self) -> list[Any]:
        """The actors, for those who watch or disturb them; none before their pool has started."""
        return [process.handle for process in self._pool.processes]

    def status(self) -> PricerStatus:
        counts = self._counts
        lag = {block: self._update_id - taken for block, taken in self._taken.items()}
        return PricerStatus(
            counts["updates"],
            dict(self._missed),
            lag,
            dict(self._errors),
            counts["rebuilt"],
            counts["replaced"],
            self._rounds_s,
        )

    def take_round_times(self) -> list[float]:
        """Seconds that each update since the last call took."""
        return [self._round_times.popleft() for _ in range(len(self._round_times))]

    def close(self) -> None:
        """End the thread and the shards."""
        self._inbox.put(None)
        self._thread.join(timeout=5.0)
        self._pool.close()

    def _all_shards(self) -> list[Shard]:
        return [Shard(index, process.up) for index, process in enumerate(self._pool.processes)]

    def _settle(self, update: Update) -> None:
        """Remember the prices that the router now takes; count the blocks that missed."""
        self._update_id = update.work.update_id
        for block, home in enumerate(update.homes):
            tables = update.tables.get(block)
            if tables is not None:
                self._taken[block] = self._update_id
                taken = Home(home.layout, home.device_indices, tables[:, :2, :-1], update.work.next_grid)
                self._homes[block] = taken
                continue
            self._missed[block] += 1
            if self._clock is None:
                raise RuntimeShellError(
                    f"price shard {block} did not finish update {update.work.update_id}: "
                    f"{dict(self._errors) or 'no answer'}"
                )

    # The rest runs in the pricer's thread.

    def _serve(self) -> None:
        while (update := self._inbox.get()) is not None:
            began = time.perf_counter()
            if update == "start":
                self._begin()
                continue
            try:
                self._run(update)
            except Exception as error:  # whatever happens, the next update is tried
                self._note(error, "price update %d failed", update.work.update_id)
            self._rounds_s = time.perf_counter() - began
            self._round_times.append(self._rounds_s)
            update.finished.set()

    def _begin(self) -> None:
        try:
            self._pool.start()
        except Exception as error:  # routing goes on without prices
            self._note(error, "starting %d price shards failed", len(self._pool))
        self._shards = self._all_shards()

    def _run(self, update: Update) -> None:
        """All rounds; shards that fall out on the way do not come back into this update."""
        work = update.work
        calls = {shard: self._open(shard, update) for shard in self._shards[: len(update.homes)] if self._free(shard)}
        for round_index in range(work.rounds):
            size = int(np.count_nonzero(work.samples[:, SampleColumn.ROUND] == round_index))
            answers = self._gather(calls, update, round_index)
            bids = {s: b for s, b in answers.items() if self._sound(s, check_bids, b, size)}
            if not bids:
                return
            winners = pick_winners(list(bids.values()), work.scalars)
            calls = {shard: self._advance(shard, update, winners, round_index + 1) for shard in bids}
        tables = self._gather(calls, update, work.rounds)
        buckets = work.occupied.shape[2]
        with self._lock:
            if update.closed:
                return
            for shard, table in tables.items():
                devices = len(update.homes[shard.index].device_indices)
                if self._sound(shard, check_tables, table, devices, buckets):
                    update.tables[shard.index] = table

    def _free(self, shard: Shard) -> bool:
        """Whether the shard can take an update; one that has been silent too often gets another process."""
        gone = self._pool.processes[shard.index].gone
        if gone.done() and (end := gone.exception()) is not None:
            self._failed(shard, end)
        waiting = shard.unanswered
        if waiting is not None and self._clock is None:
            wait([waiting], timeout=_SIMULATED_TIMEOUT_S)
        if waiting is None or waiting.done():
            if waiting is not None and (error := waiting.exception()) is not None:
                self._failed(shard, error)
                return False
            shard.unanswered, shard.silent_updates, shard.starting = None, 0, False
            return True
        shard.silent_updates += 1
        patience = time.monotonic() - shard.asked_s < _START_TIMEOUT_S if shard.starting else False
        if shard.silent_updates >= self._max_missed and not patience:
            self._replace(shard)
        return False

    def _replace(self, shard: Shard) -> None:
        self._pool.replace(shard.index)
        self._counts["replaced"] += 1
        self._moved(shard)

    def _moved(self, shard: Shard) -> None:
        """The shard has another process."""
        shard.holds, shard.broken, shard.silent_updates, shard.starting = -1, True, 0, True
        shard.unanswered, shard.asked_s = self._pool.processes[shard.index].up, time.monotonic()

    def _open(self, shard: Shard, update: Update) -> Future[Any]:
        handle, home, work = self._pool.processes[shard.index].handle, update.homes[shard.index], update.work
        if shard.holds != home.layout:
            handle.rebuild.remote(home.device_indices, home.prices, home.grid)
            self._counts["rebuilt"] += shard.broken
            shard.holds, shard.broken = home.layout, False
        per_device, value = rows_of(work, home.device_indices)
        call = handle.open.remote(work.update_id, work.scalars, per_device, work.samples, value)
        return future_of(call)

    def _advance(self, shard: Shard, update: Update, winners: Winners, next_round: int) -> Future[Any]:
        handle, update_id = self._pool.processes[shard.index].handle, update.work.update_id
        if next_round < update.work.rounds:
            return future_of(handle.step.remote(update_id, winners, next_round))
        return future_of(handle.close.remote(update_id, winners))

    def _gather(self, calls: dict[Shard, Future[Any]], update: Update, phase: int) -> dict[Shard, Any]:
        """Answers that come in time. Phase i of K + 1 has the i-th share of the time to the deadline."""
        wait(calls.values(), timeout=self._time_left_s(update, phase))
        answers = {}
        for shard, call in calls.items():
            if not call.done():
                shard.unanswered = call
            elif (error := call.exception()) is not None:
                self._failed(shard, error)
            else:
                answers[shard] = call.result()
        return answers

    def _time_left_s(self, update: Update, phase: int) -> float:
        if self._clock is None:
            return _SIMULATED_TIMEOUT_S
        share = (phase + 1) / (update.work.rounds + 2)
        return max(0.0, update.submitted_s + share * (update.work.due_s - update.submitted_s) - self._clock())

    def _sound(self, shard: Shard, check: Callable[..., None], *answer: Any) -> bool:
        try:
            check(*answer)
        except PriceError as error:
            self._failed(shard, error)
            return False
        return True

    def _failed(self, shard: Shard, error: BaseException) -> None:
        """The shard is out of this update and will be rebuilt, in another process when its own is down."""
        self._note(error, "price shard %d failed", shard.index)
        shard.holds, shard.broken, shard.unanswered = -1, True, None
        if isinstance(error, ActorDiedError):
            self._replace(shard)
        elif isinstance(error, RayActorError):
            self._pool.swap(shard.index)
            self._moved(shard)

    def _note(self, error: BaseException, text: str, which: int) -> None:
        name = type(getattr(error, "cause", None) or error).__name__
        self._errors[name] += 1
        _log.warning(text + ": %s: %s", which, name, str(error).splitlines()[-1] if str(error) else "")
