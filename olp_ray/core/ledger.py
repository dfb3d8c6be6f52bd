"""The only ledger: who is on which device, what that occupies now, and what it is going to occupy.

Here live residents and limits; step times are `step_times`, limits to come `capacity_plan`. Who waits, who may start
and what it is worth do not.

Notation
    symbol   meaning                                            shape     unit      paper
    G, R     devices, columns for residents                               count     G
    B, M     batch slots and KV tokens of a device              (G,)                B_g, M_g
    s        prompt tokens, plus what block rounding may add    (G, R)    tokens    s_j
    o^       predicted output tokens                            (G, R)    tokens    o-hat_j
    theta    tokens decoded so far                              (G, R)    tokens    theta
    tau      seconds per decode iteration                       (G,)      s         1

Arrays are padded: row g holds count[g] residents in its first columns, in no stated order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.capacity_plan import CapacityPlan, Limits
from olp_ray.core.kernels.records import ASSIGNED_S, DECODED, KNOWN_S, PREDICTED, PROMPT, STARTED, Fleet
from olp_ray.core.numbers import is_finite, is_float, shown
from olp_ray.core.prefill import PrefillTracker
from olp_ray.core.step_times import StepTimes
from olp_ray.core.types import AssignmentKey, Device, EngineObserved, Request, Stage
from olp_ray.errors import EventError, SnapshotError

_FIELDS = 6
MOST_STEP_SHARE = 1000.0  # of the device's first estimate; what an engine reports beyond is no step time

_device_id_of = attrgetter("device_id")
_sum = np.add.reduce  # what `sum` of an array does, without its detour


class Resident(NamedTuple):
    """One resident, as of some moment; tokens are estimates between the engine's reports."""

    assigned_s: float
    started: bool
    decoded_tokens: float
    predicted_tokens: float


class Ledger:
    """Residents by assignment key, beside arrays over all devices.

    A resident counts from its assignment to its release, whether the engine has started it or not. Public arrays are
    for reading. Raises `EventError` for an unknown device or key; then nothing has changed.
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        self.devices: list[Device] = []
        self.count = np.zeros(0, dtype=np.int64)
        self.slots = np.zeros(0)
        self.kv_tokens = np.zeros(0)
        self.draining = np.zeros(0, dtype=bool)
        self.external_slots = np.zeros(0)
        self.external_kv_tokens = np.zeros(0)
        self.prefill = PrefillTracker()
        self._steps = StepTimes()
        self._plan = CapacityPlan()
        self._data = np.zeros((_FIELDS, 0, 8))
        self._keys: list[list[AssignmentKey]] = []
        self._requests: dict[AssignmentKey, Request] = {}
        self._columns: list[dict[AssignmentKey, int]] = []  # per device
        self._row: dict[str, int] = {}
        self._renew_fleet()
        for device in devices:
            self.join(device)

    # -- devices ------------------------------------------------------------------------------------------------

    def row(self, device_id: str) -> int:
        """Index of the device in every array."""
        try:
            return self._row[device_id]
        except KeyError:
            raise EventError(f"unknown device {device_id!r}; known: {', '.join(self._row) or 'none'}") from None

    def __contains__(self, device_id: str) -> bool:
        return device_id in self._row

    def join(self, device: Device) -> None:
        """Add an empty device at the end."""
        if device.id in self._row:
            raise EventError(f"device {device.id!r} is in the fleet already; it must be lost before it joins again")
        self._row[device.id] = len(self.devices)
        self.devices.append(device)
        self._keys.append([])
        self._columns.append({})
        self.count = np.append(self.count, 0)
        self.slots = np.append(self.slots, float(device.slots))
        self.kv_tokens = np.append(self.kv_tokens, float(device.kv_tokens))
        self.draining = np.append(self.draining, False)
        self.external_slots = np.append(self.external_slots, 0.0)
        self.external_kv_tokens = np.append(self.external_kv_tokens, 0.0)
        self.prefill.join(device.prefill_tokens_per_s)
        self._steps.join(device)
        self._plan.join()
        self._renew_fleet()
        self._data = np.concatenate([self._data, np.zeros((_FIELDS, 1, self._data.shape[2]))], axis=1)

    def drain(self, device_id: str) -> None:
        self.draining[self.row(device_id)] = True
        self.open_devices = (~self.draining).nonzero()[0]

    def remove(self, device_id: str) -> list[tuple[AssignmentKey, Request]]:
        """Take the device out; returns its residents in order of assignment."""
        g = self.row(device_id)
        order = np.argsort(self._data[ASSIGNED_S, g, : self.count[g]], kind="stable")
        lost = [(self._keys[g][i], self._requests[self._keys[g][i]]) for i in order]
        for key, _ in lost:
            del self._requests[key]
        del self.devices[g], self._keys[g], self._columns[g]
        for name in _DEVICE_ARRAYS:
            setattr(self, name, np.delete(getattr(self, name), g))
        self._data = np.delete(self._data, g, axis=1)
        self.prefill.remove(g)
        self._steps.remove(g)
        self._plan.remove(g)
        self._row = {device.id: i for i, device in enumerate(self.devices)}
        self._renew_fleet()
        return lost

    def schedule_capacity(self, device_id: str, from_s: float, slots: int, kv_tokens: int) -> None:
        """From `from_s` on the device has these limits, until a later `from_s`; of two for one time the one told last.

        So what is told late does not undo a change of a later time that is in effect already.
        """
        self._plan.add(self.row(device_id), device_id, Limits(from_s, slots, kv_tokens))

    def apply_schedules(self, now_s: float) -> None:
        """Let every capacity change that is due take effect."""
        if self._plan.next_s <= now_s:
            for g, limits in self._plan.take_due(now_s):
                self.slots[g], self.kv_tokens[g] = limits.slots, limits.kv_tokens

    def next_change_s(self) -> float:
        """Time of the next scheduled capacity change, inf if there is none."""
        return self._plan.next_s

    def capacity_ahead(self, now_s: float, bucket_s: float, buckets: int) -> np.ndarray:
        """Slots and KV tokens per bucket from now, shape (G, 2, N), at least 1."""
        ahead = np.empty((len(self.devices), 2, buckets))
        ahead[:, 0] = self.slots[:, None]
        ahead[:, 1] = self.kv_tokens[:, None]
        self._plan.put_into(ahead, now_s, bucket_s)
        return np.maximum(ahead, 1.0)

    def set_external(self, device_id: str, slots: float, kv_tokens: float) -> None:
        """Load on the device that did not come from here."""
        g = self.row(device_id)
        if not (is_finite(slots) and is_finite(kv_tokens) and slots >= 0 and kv_tokens >= 0):
            load = f"{shown(slots)} slots, {shown(kv_tokens)} KV tokens"
            raise EventError(f"external load of {device_id!r} is {load}; expected >= 0")
        self.external_slots[g], self.external_kv_tokens[g] = slots, kv_tokens

    def observe(self, event: EngineObserved, now_s: float) -> None:
        """Correct external load and step time by what the engine says.

        What was assigned after the engine looked is not in its numbers, so only residents from before then are
        compared; our own counts are never lowered by a stale look.
        """
        g = self.row(event.device_id)
        counts = (event.running + event.waiting, event.running, event.waiting, event.kv_tokens)
        if not (
            all(is_finite(count) and count >= 0 for count in counts) and is_float(event.age_s) and event.age_s >= 0
        ):
            raise EventError(f"{shown(event)} has a count or age that is negative or no number; expected >= 0")
        most_s = MOST_STEP_SHARE * self.devices[g].step_s
        if event.step_s is not None and most_s < event.step_s < math.inf:
            raise EventError(
                f"{shown(event)} has a step_s that is too large; expected at most {most_s:g} s, "
                f"{MOST_STEP_SHARE:g} times the device's own"
            )
        seen_by_engine = self._data[ASSIGNED_S, g, : self.count[g]] <= now_s - event.age_s
        ours = int(seen_by_engine.sum())
        extra = max(event.running + event.waiting - ours, 0)
        extra_kv = max(event.kv_tokens - self.kv_now(now_s)[g] + self.external_kv_tokens[g], 0.0) if extra else 0.0
        self.external_slots[g], self.external_kv_tokens[g] = extra, extra_kv
        if event.step_s is not None and 0 < event.step_s < math.inf:
            self._steps.learn(g, event.step_s)

    # -- residents ----------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[tuple[AssignmentKey, Request]]:
        return iter(self._requests.items())

    def __len__(self) -> int:
        return len(self._requests)

    def request(self, key: AssignmentKey) -> Request | None:
        """The resident's request, or None when the key is not here (stale, finished, never assigned)."""
        return self._requests.get(key)

    def reserve(self, key: AssignmentKey, request: Request, now_s: float) -> None:
        """Put a request on a device."""
        g = self.row(key.device_id)
        if key in self._requests:
            raise EventError(f"assignment {key} is in the ledger already")
        keys = self._keys[g]
        column = len(keys)
        if column == self._data.shape[2]:
            self._data = np.concatenate([self._data, np.zeros_like(self._data)], axis=2)
        prompt = request.prompt_tokens + self.devices[g].block_tokens - 1
        self._data[:, g, column] = (prompt, request.predicted_output_tokens, 0.0, now_s, now_s, 0.0)
        self.prefill.add(g, request.prompt_tokens, now_s)
        keys.append(key)
        self.count[g] = column + 1
        self._requests[key] = request
        self._columns[g][key] = column
        self._steps.hold(g, column + 1, prompt)

    def start(self, key: AssignmentKey, now_s: float) -> None:
        """The engine took it into its batch; it decodes once the prompts before it and its own are prefilled.

        Told again of a request that runs, it changes nothing.
        """
        g, column = self._find(key)
        if self._data[STARTED, g, column]:
            return
        self._data[KNOWN_S, g, column] = now_s + self.prefill.backlog_time_s(g, now_s)
        self._data[STARTED, g, column] = 1.0

    def progress(self, keys: Sequence[AssignmentKey], decoded_tokens: np.ndarray, now_s: float) -> int:
        """Take the engine's token counts of one device; returns how many keys were unknown.

        The step time is refined from residents that were decoding all the time since their last report.
        """
        try:
            decoded = np.asarray(decoded_tokens, dtype=np.float64)
        except OverflowError as error:
            raise EventError(f"progress has a token count that is no number: {error}; expected >= 0") from error
        if not ((decoded >= 0) & (decoded < math.inf)).all():
            raise EventError("progress has negative token counts; expected >= 0")
        g = self._row.get(keys[0].device_id) if keys else None
        held: dict[AssignmentKey, int] = {} if g is None else self._columns[g]
        try:
            columns = np.fromiter(map(held.__getitem__, keys), np.int64, len(keys))
        except KeyError:
            if len(set(map(_device_id_of, keys))) > 1:
                raise EventError("progress is of several devices; expected one") from None
            columns = np.fromiter(map(held.get, keys, repeat(-1)), np.int64, len(keys))
            decoded, columns = decoded[columns >= 0], columns[columns >= 0]
        if g is not None and len(columns):
            self._take_counts(g, columns, decoded, now_s)
            self._report_prefill(g, now_s)
        return len(keys) - len(columns)

    def _take_counts(self, g: int, columns: np.ndarray, decoded: np.ndarray, now_s: float) -> None:
        counts, known_s = self._data[DECODED, g], self._data[KNOWN_S, g]
        before, since = counts[columns], now_s - known_s[columns]
        more = decoded - before
        steady = np.minimum(np.minimum(before, more), since) > 0
        counts[columns] = decoded
        known_s[columns] = now_s
        self._data[STARTED, g][columns] = 1.0
        self._steps.hold(g, len(self._keys[g]), float(_sum(more)))
        passed_s = since[steady]
        if len(passed_s):
            self._steps.learn(g, float(_sum(passed_s) / _sum(more[steady])))

    def preempt(self, key: AssignmentKey, decoded_tokens: int, now_s: float) -> None:
        """Back to the engine's own queue: it holds its place here, and stands still."""
        g, column = self._find(key)
        if not (is_finite(decoded_tokens) and decoded_tokens >= 0):
            raise EventError(f"preempted {key} has {shown(decoded_tokens)} decoded tokens; expected >= 0")
        self._steps.stand_still(g, decoded_tokens - float(self._data[DECODED, g, column]))
        self._data[DECODED : KNOWN_S + 1, g, column] = (decoded_tokens, now_s)
        self._data[STARTED, g, column] = 0.0
        self.prefill.add(g, self._data[PROMPT, g, column] + decoded_tokens, now_s)

    def release(self, key: AssignmentKey) -> Request:
        """Take a resident out; its last column moves into its place."""
        g, column = self._find(key)
        keys = self._keys[g]
        data = self._data[:, g]
        last = len(keys) - 1
        self._steps.hold(g, last, -(data.item(PROMPT, column) + data.item(DECODED, column)))
        if column != last:
            data[:, column] = data[:, last]
            keys[column] = keys[last]
            self._columns[g][keys[column]] = column
        keys.pop()
        self.count[g] = last
        del self._columns[g][key]
        return self._requests.pop(key)

    def withdraw(self, key: AssignmentKey) -> Request:
        """Take out a resident that was given up: what was left of its prompt does not have to be prefilled."""
        g, column = self._find(key)
        unseen, prompt_tokens = self._data[DECODED, g, column] == 0, float(self._data[PROMPT, g, column])
        request = self.release(key)
        if unseen:
            data = self._data[:, g, : self.count[g]]
            self.prefill.withdraw(g, prompt_tokens, float(data[PROMPT, data[DECODED] == 0].sum()))
        return request

    def resident(self, key: AssignmentKey, now_s: float) -> Resident:
        """What is known of one resident. Raises `EventError` for a key that is not here."""
        g, column = self._find(key)
        data = self._data[:, g, column]
        decoded = float(self.decoded_on(g, now_s)[column])
        return Resident(float(data[ASSIGNED_S]), bool(data[STARTED]), decoded, float(data[PREDICTED]))

    def keys_on(self, device_id: str) -> tuple[AssignmentKey, ...]:
        return tuple(self._keys[self.row(device_id)])

    # -- what is occupied ---------------------------------------------------------------------------------------

    @property
    def step_s(self) -> np.ndarray:
        """tau, (G,): under what the device holds now, so that an idle device is not taken for a slow one."""
        return self._steps.step_s

    @property
    def mean_added_s(self) -> np.ndarray:
        """What a sequence, a KV token and a prompt token add to an iteration, (3,) in s, mean of the devices."""
        return self._steps.mean_added_s

    @property
    def occupied_slots(self) -> np.ndarray:
        """Residents and external load per device, (G,)."""
        return self.count + self.external_slots

    @property
    def fleet(self) -> Fleet:
        """Everything as kernels take it."""
        return Fleet(
            self.slots,
            self.kv_tokens,
            self.external_slots,
            self.external_kv_tokens,
            self.padding,
            self.draining,
            self.count,
            self._data,
            self._steps.step_s,
            self._steps.idle_step_s,
            self._steps.per_sequence_s,
            self._steps.per_kv_token_s,
            self._steps.mean_added_s,
            *self.prefill.state,
        )

    def decoded_on(self, g: int, now_s: float) -> np.ndarray:
        """theta of the residents of device g, (count[g],): last known tokens, carried on at the device's step time for
        those that run."""
        return kernels.holding.decoded_on(self._data, g, len(self._keys[g]), now_s, self.step_s.item(g))

    def kv_now(self, now_s: float) -> np.ndarray:
        """KV tokens held per device, (G,), external load included."""
        return kernels.holding.kv_held(self._data, self.count, self.external_kv_tokens, now_s, self.step_s)

    # -- checks and snapshots -----------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise AssertionError when the arrays, lists and dicts do not say the same."""
        assert len(self._requests) == sum(map(len, self._columns)) == int(self.count.sum())
        assert [len(keys) for keys in self._keys] == self.count.tolist()
        for g, keys in enumerate(self._keys):
            for column, key in enumerate(keys):
                assert self._columns[g][key] == column
                assert key.device_id == self.devices[g].id
                request = self._requests[key]
                assert self._data[PROMPT, g, column] == request.prompt_tokens + self.devices[g].block_tokens - 1
        tokens = [self._data[[PROMPT, DECODED], g, : len(keys)].sum() for g, keys in enumerate(self._keys)]
        self._steps.check_invariants([len(keys) for keys in self._keys], tokens)
        assert np.isfinite(self._data).all()

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 3,
            "devices": list(self.devices),
            "keys": [list(keys) for keys in self._keys],
            "requests": dict(self._requests),
            "data": self._data.copy(),
            "prefill": self.prefill.snapshot(),
            "steps": self._steps.snapshot(),
            "plan": self._plan.snapshot(),
            **{name: getattr(self, name).copy() for name in _DEVICE_ARRAYS},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version."""
        if state.get("version") != 3:
            raise SnapshotError(f"ledger snapshot of version {state.get('version')}; expected 3")
        self.devices = list(state["devices"])
        self._row = {device.id: i for i, device in enumerate(self.devices)}
        self._keys = [list(keys) for keys in state["keys"]]
        self._requests = dict(state["requests"])
        self._columns = [{key: column for column, key in enumerate(keys)} for keys in self._keys]
        self._data = np.array(state["data"])
        self.prefill.restore(state["prefill"])
        self._steps.restore(state["steps"])
        self._plan.restore(state["plan"])
        for name in _DEVICE_ARRAYS:
            setattr(self, name, np.array(state[name]))
        self._renew_fleet()

    def _find(self, key: AssignmentKey) -> tuple[int, int]:
        g = self._row.get(key.device_id, -1)
        column = self._columns[g].get(key) if g >= 0 else None
        if column is None:
            raise EventError(f"assignment {key} is not in the ledger")
        return g, column

    def _renew_fleet(self) -> None:
        """What follows from the devices alone."""
        self.device_ids = tuple(device.id for device in self.devices)
        self.open_devices = (~self.draining).nonzero()[0]  # those that take new requests
        self.padding = np.array([device.block_tokens - 1.0 for device in self.devices])
        self.runs_everything = not any(device.models or len(device.stages) < len(Stage) for device in self.devices)

    def _report_prefill(self, g: int, now_s: float) -> None:
        if not self.prefill.takes_time(g):
            return
        data = self._data[:, g, : len(self._keys[g])]
        pending = (data[DECODED] == 0).nonzero()[0]
        if not len(pending):
            self.prefill.report(g, 0.0, 0.0, now_s)
            return
        prompts = data[PROMPT][pending]
        oldest = data[ASSIGNED_S][pending].argmin()
        self.prefill.report(g, float(_sum(prompts)), float(prompts[oldest]), now_s)


_DEVICE_ARRAYS = (
    "count",
    "slots",
    "kv_tokens",
    "draining",
    "external_slots",
    "external_kv_tokens",
)
