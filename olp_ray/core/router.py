"""The router: one state machine for every policy. Events in, decisions out; no clock, no I/O, no waiting.

Here live the waiting queue, the ledger, the calibration, and the commit of what a policy decided. Which request goes
where is the policy's business.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.calibration import Calibration
from olp_ray.core.explain import explain
from olp_ray.core.explanation import Explanation
from olp_ray.core.ledger import Ledger
from olp_ray.core.numbers import is_finite, shown
from olp_ray.core.policies import build_policy
from olp_ray.core.policies.base import NOTHING, Completion, PolicyStep, View
from olp_ray.core.policies.settings import PolicySettings, RouterLimits
from olp_ray.core.prefix_index import PrefixIndex
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.refusals import Refusals
from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    Cancelled,
    CapacityChanged,
    Decision,
    Device,
    DeviceDraining,
    DeviceJoined,
    DeviceLost,
    EngineObserved,
    Event,
    ExternalLoad,
    Finished,
    Preempted,
    PricesReady,
    Progressed,
    Reconfigure,
    Reject,
    ReplicaRefused,
    Request,
    RequestKey,
    Started,
    Step,
)
from olp_ray.errors import EventError, OlpRayError, PolicyError, SnapshotError

_QUIET = Step()


class Router:
    """Routes requests over devices by a policy.

    seed fixes every random choice. counters counts what was ignored or refused, by name. A bad event (a duplicate
    request, an unknown device) changes nothing: it is skipped and comes back in `Step.faults`.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: str,
        settings: PolicySettings,
        limits: RouterLimits,
        seed: int,
    ) -> None:
        self.ledger = Ledger(devices)
        self.calibration = Calibration()
        self.queue = WaitingQueue()
        self.counters: Counter[str] = Counter()
        self.policy = build_policy(policy, settings)
        self._settings = settings
        self._refusals = Refusals(limits)
        self.prefixes = PrefixIndex(limits.prefix_block_tokens)
        self._rng = np.random.default_rng(seed)
        self._attempts: dict[RequestKey, AssignmentKey] = {}
        self._refused: dict[RequestKey, Reject] = {}
        self._arrivals: list[Request] = []
        self._completions: list[Completion] = []
        self._prices: list[PricesReady] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Arrived: self._arrived,
            Started: self._started,
            Progressed: self._progressed,
            Finished: self._finished,
            Preempted: self._preempted,
            Cancelled: self._cancelled,
            ReplicaRefused: self._replica_refused,
            EngineObserved: lambda event, now_s: self.ledger.observe(event, now_s),
            CapacityChanged: self._capacity_changed,
            DeviceJoined: self._device_joined,
            DeviceDraining: lambda event, now_s: self.ledger.drain(event.device_id),
            DeviceLost: self._device_lost,
            ExternalLoad: lambda e, now_s: self.ledger.set_external(e.device_id, e.slots, e.kv_tokens),
            Reconfigure: self._reconfigure,
            PricesReady: lambda event, now_s: self._prices.append(event),
        }

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        """Take in what happened up to now_s and decide. Call it on every event and at `next_wake_s`.

        now_s does not run back from call to call, nor from a snapshot to its router restored: the driver sees to it.

        Raises `PolicyError` when the policy fails or decides what it may not; events are taken in, and the policy is
        not told of them again; queue and ledger have not changed otherwise. Raises `EventError` for a time that is
        not finite; then nothing has changed.
        """
        if not is_finite(now_s):
            raise EventError(f"now_s is {shown(now_s)}; expected a finite number")
        faults: list[OlpRayError] = []
        self.ledger.apply_schedules(now_s)
        for event in events:
            try:
                handler = self._handlers.get(type(event))
                if handler is None:
                    raise EventError(f"unknown event type {type(event).__name__}")
                handler(event, now_s)
            except EventError as error:
                self.counters["faults"] += 1
                faults.append(error)
        step = self._decide(now_s)
        decisions, next_wake_s = step.decisions, min(step.next_wake_s, self.ledger.next_change_s())
        if self._refused or self.queue:
            decisions = (*self._refused.values(), *self._overflow(), *decisions)
            self._refused = {}
        if decisions or faults or step.price_work is not None or next_wake_s < math.inf:
            return Step(decisions, step.price_work, next_wake_s, tuple(faults))
        return _QUIET

    def explain(self, now_s: float, request_id: str | None = None, most: int | None = None) -> tuple[Explanation, ...]:
        """What each request is worth and costs where, why it waits and for how long; or only the stages of one id.

        Requests that wait come first, in order of arrival, then those on devices; at most `most`. Nothing changes.
        """
        return explain(self._view(), self.policy, now_s, request_id, most)

    def where(self, key: RequestKey) -> AssignmentKey | None:
        """The assignment that the request holds now, or None when it waits or is not known."""
        return self._attempts.get(key)

    def check_invariants(self) -> None:
        """Raise AssertionError when a request is in two places, or the books do not say the same."""
        self.ledger.check_invariants()
        resident = [key.request_key for key, _ in self.ledger]
        assert len(resident) == len(set(resident))
        assert {key.request_key: key for key, _ in self.ledger} == self._attempts
        assert not any(key in self.queue for key in resident)
        order = [(w.request.arrival_s, w.request.id) for w in self.queue]
        assert order == sorted(order)

    def snapshot(self) -> dict[str, Any]:
        """Everything needed to go on, as a plain dict of values, records and arrays. Version 1."""
        return {
            "version": 1,
            "policy_name": self.policy.name,
            "settings": self._settings,
            "policy": self.policy.snapshot(),
            "ledger": self.ledger.snapshot(),
            "calibration": self.calibration.snapshot(),
            "prefixes": self.prefixes.snapshot(),
            "queue": [(entry.request, entry.attempt) for entry in self.queue],
            "counters": dict(self.counters),
            "rng": self._rng.bit_generator.state,
            "pending": (
                list(self._refused.values()),
                list(self._arrivals),
                list(self._completions),
                list(self._prices),
            ),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take a `snapshot` back. Raises `SnapshotError` for another version; then nothing has changed."""
        if state.get("version") != 1:
            raise SnapshotError(f"router snapshot of version {state.get('version')}; expected 1")
        policy = build_policy(state["policy_name"], state["settings"])
        policy.restore(state["policy"])
        self.policy, self._settings = policy, state["settings"]
        self.ledger.restore(state["ledger"])
        self._refusals.forget()
        self.calibration.restore(state["calibration"])
        self.prefixes.restore(state["prefixes"])
        self.queue = WaitingQueue()
        for request, attempt in state["queue"]:
            self.queue.add(request, attempt)
        self.counters = Counter(state["counters"])
        self._rng.bit_generator.state = state["rng"]
        refused, self._arrivals, self._completions, self._prices = (list(part) for part in state["pending"])
        self._refused = {rejection.request.key: rejection for rejection in refused}
        self._attempts = {key.request_key: key for key, _ in self.ledger}

    # -- events -------------------------------------------------------------------------------------------------

    def _arrived(self, event: Arrived, now_s: float) -> None:
        request = event.request
        if request.key in self._refused or request.key in self._attempts or request.key in self.queue:
            raise EventError(f"request {request.id!r} ({request.stage}) is here already; ids must be unique")
        refusal = self._refusals.never(request, self.ledger.devices)
        if refusal is not None:
            self._refused[request.key] = refusal
            self.counters["rejected"] += 1
            return
        request = self._refusals.bounded(request, self.ledger.devices)
        self.queue.add(request, 0)
        self._arrivals.append(request)

    def _started(self, event: Started, now_s: float) -> None:
        if self._is_current(event.key):
            self.ledger.start(event.key, now_s)

    def _progressed(self, event: Progressed, now_s: float) -> None:
        if len(event.keys) != len(event.decoded_tokens):
            raise EventError(f"progress of {len(event.keys)} requests has {len(event.decoded_tokens)} token counts")
        self.counters["stale_events"] += self.ledger.progress(event.keys, event.decoded_tokens, now_s)

    def _finished(self, event: Finished, now_s: float) -> None:
        if not self._is_current(event.key):
            return
        if not is_finite(event.output_tokens):
            tokens = shown(event.output_tokens)
            raise EventError(f"finished {event.key} has {tokens} output tokens; expected a finite number")
        request = self._release(event.key)
        self.calibration.add(request.prompt_tokens, request.predicted_output_tokens, event.output_tokens)
        self._completions.append(Completion(request, event.output_tokens))

    def _preempted(self, event: Preempted, now_s: float) -> None:
        if self._is_current(event.key):
            self.ledger.preempt(event.key, event.decoded_tokens, now_s)
            self.counters["preempted"] += 1

    def _cancelled(self, event: Cancelled, now_s: float) -> None:
        entry = self.queue.find(event.request_key)
        if entry is not None:
            self.queue.remove(entry.request)
        elif event.request_key in self._attempts:
            self._withdraw(self._attempts[event.request_key])
        else:
            self.counters["stale_events"] += 1
            return
        self.counters["cancelled"] += 1

    def _replica_refused(self, event: ReplicaRefused, now_s: float) -> None:
        if self._is_current(event.key):
            self._requeue(event.key, self._withdraw(event.key))

    def _capacity_changed(self, event: CapacityChanged, now_s: float) -> None:
        self.ledger.schedule_capacity(event.device_id, event.from_s, event.slots, event.kv_tokens)
        self.ledger.apply_schedules(now_s)

    def _device_joined(self, event: DeviceJoined, now_s: float) -> None:
        self.ledger.join(event.device)
        self._refusals.forget()

    def _device_lost(self, event: DeviceLost, now_s: float) -> None:
        device = self.ledger.devices[self.ledger.row(event.device_id)]
        if device.incarnation != event.incarnation:
            self.counters["stale_events"] += 1
            return
        self.prefixes.drop(event.device_id)
        self._refusals.forget()
        for key, request in self.ledger.remove(event.device_id):
            del self._attempts[request.key]
            self._requeue(key, request, came_back=True)

    def _reconfigure(self, event: Reconfigure, now_s: float) -> None:
        objective = event.objective or self._settings.objective
        settings = dataclasses.replace(self._settings, objective=objective)
        if event.policy is not None and event.policy != self.policy.name:
            try:
                self.policy = build_policy(event.policy, settings)
            except PolicyError as error:
                raise EventError(str(error)) from error
        else:
            self.policy.reconfigure(objective)
        self._settings = settings

    # -- state --------------------------------------------------------------------------------------------------

    def _view(self) -> View:
        return View(
            self.queue,
            self.ledger,
            self.calibration,
            tuple(self._arrivals),
            tuple(self._completions),
            tuple(self._prices),
            self.prefixes,
        )

    def _is_current(self, key: AssignmentKey) -> bool:
        if self.ledger.request(key) is not None:
            return True
        self.counters["stale_events"] += 1
        return False

    def _withdraw(self, key: AssignmentKey) -> Request:
        request = self.ledger.withdraw(key)
        del self._attempts[request.key]
        return request

    def _release(self, key: AssignmentKey) -> Request:
        request = self.ledger.release(key)
        del self._attempts[request.key]
        return request

    def _requeue(self, key: AssignmentKey, request: Request, *, came_back: bool = False) -> None:
        self.queue.add(request, key.attempt + 1, came_back=came_back)
        self.counters["requeued"] += 1

    def _overflow(self) -> list[Reject]:
        rejections = self._refusals.overflow(self.queue)
        for rejection in rejections:
            self._drop(rejection)
        return rejections

    # -- decisions ----------------------------------------------------------------------------------------------

    def _decide(self, now_s: float) -> PolicyStep:
        """Ask the policy and carry out what it says; one that holds nothing back is asked only when something waits."""
        asked = self.policy.holding or bool(self.queue)
        view = self._view() if asked else None
        self._arrivals, self._completions, self._prices = [], [], []
        if view is None:
            return NOTHING
        step = self.policy.step(view, now_s, self._rng)
        if step.rate_changed:
            self.counters["rate_changes"] += 1
        if step.decisions:
            self._check(step.decisions)
            for decision in step.decisions:
                self._commit(decision, now_s)
        self.queue.settle()
        return step

    def _check(self, decisions: Sequence[Decision]) -> None:
        """Raise `PolicyError` unless every decision is about a different waiting request and an open device."""
        seen: set[RequestKey] = set()
        for decision in decisions:
            request = decision.request
            if request.key not in self.queue or request.key in seen:
                raise PolicyError(f"{self.policy.name}: {request.id!r} does not wait, or was decided twice")
            seen.add(request.key)
            if isinstance(decision, Assign):
                g = self.ledger.row(decision.key.device_id)
                device = self.ledger.devices[g]
                if self.ledger.draining[g] or decision.key.incarnation != device.incarnation:
                    raise PolicyError(f"{self.policy.name}: device {device.id!r} takes no new requests")
                if not (self.ledger.runs_everything or device.can_run(request)):
                    raise PolicyError(f"{self.policy.name}: device {device.id!r} can not run {request.id!r}")

    def _commit(self, decision: Decision, now_s: float) -> None:
        if isinstance(decision, Reject):
            self._drop(decision)
            return
        self.queue.remove(decision.request)
        self.ledger.reserve(decision.key, decision.request, now_s)
        if decision.request.prefix_blocks:
            kv_tokens = self.ledger.devices[self.ledger.row(decision.key.device_id)].kv_tokens
            self.prefixes.add(decision.key.device_id, decision.request, kv_tokens)
        self._attempts[decision.request.key] = decision.key
        self.counters["assigned"] += 1

    def _drop(self, rejection: Reject) -> None:
        self.queue.remove(rejection.request)
        self.counters["rejected"] += 1
