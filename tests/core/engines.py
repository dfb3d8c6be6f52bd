"""Engines that run what a router assigns, kept apart from every ledger, and that behave or misbehave on demand.

A `World` plays a list of actions, checks each decision against its own books, and knows how every request ended.
"""

from collections import Counter

import numpy as np

from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer
from olp_ray.core.router import Router
from olp_ray.core.types import (
    Arrived,
    Assign,
    AssignmentKey,
    Cancelled,
    CapacityChanged,
    Device,
    DeviceDraining,
    DeviceJoined,
    DeviceLost,
    EngineObserved,
    ExternalLoad,
    Finished,
    Preempted,
    Progressed,
    Reconfigure,
    RejectReason,
    ReplicaRefused,
    Request,
    Stage,
    Started,
)

TICK_S = 1.0
ALL_MODELS = frozenset({"m", "n"})


class Engine:
    """Continuous batching with its own FIFO: one token per request and second, eviction of the newest when full."""

    def __init__(self, device):
        self.device = device
        self.slots, self.kv_tokens = device.slots, device.kv_tokens
        self.draining = False
        self.fifo = []
        self.decoded = {}  # running requests, in order of their start

    def kv(self, requests):
        return sum(requests[key].prompt_tokens + decoded for key, decoded in self.decoded.items())

    def tick(self, requests, true_tokens):
        """One iteration; returns its events, and the keys that finished."""
        events, finished = [], []
        while self.fifo and len(self.decoded) < self.slots:
            needs = requests[self.fifo[0]].prompt_tokens + 1 + len(self.decoded)
            if self.decoded and self.kv(requests) + needs > self.kv_tokens:
                break
            key = self.fifo.pop(0)
            self.decoded[key] = 0
            events.append(Started(key))
        for key in list(self.decoded):
            self.decoded[key] += 1
            if self.decoded[key] >= true_tokens[key.request_key]:
                finished.append(key)
                events.append(Finished(key, self.decoded.pop(key)))
        while self.kv(requests) > self.kv_tokens and len(self.decoded) > 1:
            key, decoded = self.decoded.popitem()
            self.fifo.insert(0, key)
            events.append(Preempted(key, decoded))
        return events, finished


class World:
    """A router and its engines. Every `handle` is followed by all checks."""

    def __init__(self, policy, devices, settings, limits, *, blocks=1, missed=(), seed=0, objectives=()):
        self.router = Router(devices, policy, settings, limits, seed)
        self.arguments = (policy, settings, limits, seed)
        self.objectives = objectives
        self.blocks = blocks
        self.pricer = InlinePricer(blocks, missed)
        self.priced = PricedRouter(self.router, self.pricer)
        self.engines = {device.id: Engine(device) for device in devices}
        self.incarnations = Counter({device.id: device.incarnation for device in devices})
        self.now_s = 0.0
        self.requests = {}  # assignment key -> request
        self.true_tokens = {}
        self.waiting = {}
        self.on = {}
        self.ended = {}
        self.past = []  # keys whose attempt is over
        self.log = []
        self.preemptions = 0

    # -- the router ---------------------------------------------------------------------------------------------

    def handle(self, *events):
        """Give events to the router at this time, carry out what it decides, check everything."""
        step = self.priced.handle(self.now_s, events)
        self.router.check_invariants()
        assigned = set()
        for decision in step.decisions:
            request = self.waiting.pop(decision.request.key)
            assert request is decision.request
            if isinstance(decision, Assign):
                self.assign(decision)
                assigned.add(decision.key.device_id)
                self.log.append((self.now_s, request.id, decision.key.device_id, decision.key.attempt))
            else:
                assert decision.retry_after_s > 0
                assert decision.limit
                self.end(request.key, decision.reason)
                self.log.append((self.now_s, request.id, decision.reason))
        if self.router.policy.holding:
            self.check_limits(assigned)
        assert {entry.request.key for entry in self.router.queue} == set(self.waiting)
        assert {key.request_key: key for key, _ in self.router.ledger} == self.on
        assert step.next_wake_s > self.now_s
        return step

    def assign(self, decision):
        key = decision.key
        engine = self.engines[key.device_id]
        assert key.incarnation == engine.device.incarnation
        assert not engine.draining
        assert engine.device.can_run(decision.request)
        assert key not in self.requests  # an attempt is never used twice
        self.requests[key] = decision.request
        self.on[key.request_key] = key
        engine.fifo.append(key)

    def check_limits(self, assigned):
        """A holding policy keeps to the slots and to the engine's own check, by what the router knew."""
        ledger = self.router.ledger
        for device_id in assigned:
            g = ledger.row(device_id)
            assert ledger.occupied_slots[g] <= ledger.slots[g]
            assert ledger.kv_now(self.now_s)[g] + ledger.count[g] <= ledger.kv_tokens[g] + 1e-6

    def end(self, key, how):
        assert key not in self.ended
        self.ended[key] = how

    def leave(self, key):
        """An assignment is over; returns its request."""
        assert self.on.pop(key.request_key) == key
        self.past.append(key)
        engine = self.engines.get(key.device_id)
        if engine and engine.device.incarnation == key.incarnation:
            engine.decoded.pop(key, None)
            if key in engine.fifo:
                engine.fifo.remove(key)
        return self.requests[key]

    # -- what happens -------------------------------------------------------------------------------------------

    def arrive(self, prompt_tokens, predicted, true_tokens, **fields):
        request = Request(f"r{len(self.true_tokens)}", self.now_s, prompt_tokens, float(predicted), **fields)
        self.true_tokens[request.key] = true_tokens
        self.waiting[request.key] = request
        self.handle(Arrived(request))
        return request

    def tick(self, silent=False):
        """Let a second pass on every engine. silent engines report no progress."""
        self.now_s += TICK_S
        events = []
        for engine in self.engines.values():
            happened, finished = engine.tick(self.requests, self.true_tokens)
            events.extend(happened)
            self.preemptions += sum(isinstance(event, Preempted) for event in happened)
            for key in finished:
                self.leave(key)
                self.end(key.request_key, "finished")
            if engine.decoded and not silent:
                events.append(Progressed(tuple(engine.decoded), np.array(list(engine.decoded.values()))))
        return self.handle(*events)

    def lose(self, device_id):
        engine = self.engines.pop(device_id)
        lost = [key for key in self.on.values() if key.device_id == device_id]
        for key in lost:
            self.waiting[key.request_key] = self.leave(key)
        self.handle(DeviceLost(device_id, engine.device.incarnation))

    def join(self, device_id, slots=4, kv_tokens=400, models=ALL_MODELS, **fields):
        self.incarnations[device_id] += 1
        device = Device(device_id, slots, kv_tokens, 1.0, self.incarnations[device_id], models=models, **fields)
        self.engines[device_id] = Engine(device)
        self.handle(DeviceJoined(device))

    def settle(self, ticks=3000):
        """Give the fleet room for everything, and let it run dry."""
        self.join("roomy", slots=8, kv_tokens=4000)
        for _ in range(ticks):
            if not self.waiting and not self.on:
                return
            self.tick()
        raise AssertionError(f"still waiting: {list(self.waiting)}; still running: {list(self.on.values())}")

    def restart(self):
        """Go on with a new router that took back a snapshot of this one; price work in flight is lost."""
        state = self.router.snapshot()
        self.router = Router([], *self.arguments)
        self.router.restore(state)
        self.pricer = InlinePricer(self.blocks)
        self.priced = PricedRouter(self.router, self.pricer)

    # -- actions by name, for generated streams ---------------------------------------------------------------------

    def act(self, name, n):
        """Play one action of `ACTIONS`; n picks whom it meets."""
        getattr(self, "act_" + name)(n)

    def act_arrive(self, n):
        for k in range(1 + n % 4):
            m = n + 101 * k
            true_tokens = 1 + m % 37
            predicted = max(1, true_tokens + m // 37 % 9 - 4)
            self.arrive(m % 61, predicted, true_tokens, model=("", "", "n", "m")[m % 4], priority=m % 3)

    def act_tick(self, n):
        for _ in range(1 + n % 3):
            self.tick(silent=n % 4 == 0)

    def act_never(self, n):
        reasons = {RejectReason.NEVER_FITS, RejectReason.NO_DEVICE}
        request = self.arrive(10**6, 5, 5) if n % 2 else self.arrive(5, 5, 5, model="unheard of")
        assert self.ended[request.key] in reasons

    def act_cancel(self, n):
        keys = [*self.waiting, *self.on]
        if not keys:
            return
        key = keys[n % len(keys)]
        self.end(key, "cancelled")
        if key in self.on:
            self.leave(self.on[key])
        else:
            del self.waiting[key]
        self.handle(Cancelled(key))

    def act_refuse(self, n):
        waiting = [key for engine in self.engines.values() for key in engine.fifo]
        if waiting:
            key = waiting[n % len(waiting)]
            self.waiting[key.request_key] = self.leave(key)
            self.handle(ReplicaRefused(key, "busy"))

    def act_preempt(self, n):
        running = [(engine, key) for engine in self.engines.values() for key in engine.decoded]
        if running:
            engine, key = running[n % len(running)]
            engine.fifo.insert(0, key)
            self.handle(Preempted(key, engine.decoded.pop(key)))

    def act_lose(self, n):
        if self.engines:
            self.lose(list(self.engines)[n % len(self.engines)])

    def act_join(self, n):
        if len(self.engines) < 4:
            models = frozenset({"m"}) if n % 5 == 0 else ALL_MODELS
            self.join(f"j{n % 9}x{self.incarnations.total()}", 1 + n % 4, 80 + n % 200, models=models)

    def act_come_back(self, n):
        gone = [device_id for device_id in self.incarnations if device_id not in self.engines]
        if gone:
            self.join(gone[n % len(gone)], block_tokens=1 + 15 * (n % 2))

    def act_drain(self, n):
        if self.engines:
            engine = list(self.engines.values())[n % len(self.engines)]
            engine.draining = True
            self.handle(DeviceDraining(engine.device.id))

    def act_capacity(self, n):
        """Capacity changes now; the engine follows at once, with what it runs."""
        if self.engines:
            engine = list(self.engines.values())[n % len(self.engines)]
            engine.slots, engine.kv_tokens = max(n % 6, 1), 60 + n % 300
            ahead_s = (n % 3) * 2.0
            self.handle(CapacityChanged(engine.device.id, self.now_s + ahead_s, n % 6, 60 + n % 300))

    def act_external(self, n):
        if self.engines:
            self.handle(ExternalLoad(list(self.engines)[n % len(self.engines)], n % 3, n % 50))

    def act_observe(self, n):
        if self.engines:
            engine = list(self.engines.values())[n % len(self.engines)]
            held, running = engine.kv(self.requests), len(engine.decoded)
            step_s = (None, 1.0, 0.9)[n % 3]
            event = EngineObserved(engine.device.id, running, len(engine.fifo) + n % 2, held, step_s, float(n % 2))
            self.handle(event)

    def act_stale(self, n):
        """Events of an attempt that is over change nothing."""
        if not self.past:
            return
        key = self.past[n % len(self.past)]
        event = (
            Started(key),
            Progressed((key,), np.array([3])),
            Finished(key, 3),
            Preempted(key, 3),
            ReplicaRefused(key, "late"),
            Cancelled(key.request_key),
        )[n % 6]
        if isinstance(event, Cancelled) and key.request_key not in self.ended:
            return
        before = self.router.counters["stale_events"]
        step = self.handle(event)
        assert step.faults == ()
        assert self.router.counters["stale_events"] == before + 1

    def act_fault(self, n):
        """Events that contradict what is known come back, and only they."""
        some = list(self.waiting.values()) + [self.requests[key] for key in self.on.values()]
        events = [
            CapacityChanged("nowhere", self.now_s, 3, 100),
            EngineObserved("nowhere", 1, 1, 1, 1.0, 0.0),
            DeviceDraining("nowhere"),
            DeviceLost("nowhere", 0),
            ExternalLoad("nowhere", 1, 1),
            Progressed((AssignmentKey("r0", Stage.MIXED, "nowhere", 0, 0),), np.array([1, 2])),
            Reconfigure(policy="no_such_policy"),
            *(Arrived(request) for request in some[:1]),
            *(DeviceJoined(engine.device) for engine in list(self.engines.values())[:1]),
            *(CapacityChanged(device_id, self.now_s, -1, 5) for device_id in list(self.engines)[:1]),
        ]
        step = self.handle(events[n % len(events)])
        assert len(step.faults) == 1

    def act_stale_loss(self, n):
        if self.engines:
            device = list(self.engines.values())[n % len(self.engines)].device
            step = self.handle(DeviceLost(device.id, device.incarnation - 1))
            assert step.faults == ()

    def act_reconfigure(self, n):
        self.handle(Reconfigure(objective=self.objectives[n % len(self.objectives)]))


ACTIONS = tuple(name.removeprefix("act_") for name in dir(World) if name.startswith("act_"))
OFTEN = ("arrive", "arrive", "arrive", "tick", "tick", "tick", "tick", "tick", "cancel", "lose", "come_back")
