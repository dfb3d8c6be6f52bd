"""What an ingress has going: each request's way from submission over its assignment to its last token.

It carries and keeps books; which request goes where, and when, is the coordinator's decision. An engine that breaks
off is reported lost, and requests that have no token yet are assigned anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any

from ray.exceptions import RayError

from olp_ray.core.types import (
    Assign,
    AssignmentKey,
    Cancelled,
    Device,
    DeviceLost,
    ReplicaRefused,
    Request,
    RequestKey,
)
from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.background import background
from olp_ray.runtime.client import IngressLine, deliver, read_streams
from olp_ray.runtime.messages import Answer, InFlight, Report, Submission, key_of
from olp_ray.serve.engines.emulated import Tokens, Work

_log = logging.getLogger(__name__)


class Ticket:
    """One request in the ingress. Times are of `time.monotonic`."""

    def __init__(self, request: Request, output_tokens: int, name: str) -> None:
        self.request = request
        self.name = name  # by which the client knows it
        self.output_tokens = output_tokens
        self.came_s = time.monotonic()
        self.assignment: Assign | None = None
        self.received_tokens = 0
        self.over = False
        self.told = False  # a coordinator was told that it runs
        self.answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._tokens: asyncio.Queue[Tokens | RuntimeShellError] = asyncio.Queue()

    async def tokens(self) -> AsyncIterator[int]:
        """How many tokens more, each time some come, until the last. Raises `RuntimeShellError`."""
        while True:
            item = await self._tokens.get()
            if isinstance(item, RuntimeShellError):
                raise item
            if item.count:
                yield item.count
            if item.over:
                return

    def decide(self, answer: Answer) -> None:
        """The first decision about the request goes to whoever waits for `answered`."""
        if not self.answered.done():
            self.answered.set_result(answer)

    def push(self, tokens: Tokens) -> None:
        self.received_tokens += tokens.count
        self.over = self.over or tokens.over
        self._tokens.put_nowait(tokens)

    def fail(self, error: RuntimeShellError) -> None:
        self.over = True
        self._tokens.put_nowait(error)


class Dispatcher:
    """The requests of one ingress. engines are actor handles by device id."""

    def __init__(self, ingress_id: str, coordinator: Any, engines: Mapping[str, Any]) -> None:
        self._ingress_id = ingress_id
        self._coordinator = coordinator
        self._engines = engines
        self._devices: dict[str, Device] = {}
        self._lost: dict[str, DeviceLost] = {}
        self._tickets: dict[RequestKey, Ticket] = {}
        self._to_start: dict[str, list[Work]] = {}
        self._line = IngressLine(coordinator, ingress_id, self._take, self._report)
        self._reporter = self._line.reporter
        self._calls: set[asyncio.Task[None]] = set()

    def open(self, request: Request, output_tokens: int, name: str) -> Ticket:
        """Submit a request. Every ticket must be closed, whatever happens."""
        ticket = Ticket(request, output_tokens, name)
        self._tickets[request.key] = ticket
        self._line.submit(Submission(request, 0.0))
        return ticket

    def close(self, ticket: Ticket) -> None:
        """Forget a request; one that is not over is cancelled at the coordinator and at its engine.

        The coordinator hears of an end from the engine, and may have died since: one that was told by the ingress that
        the request runs is told by it that it does not.
        """
        self._tickets.pop(ticket.request.key, None)
        ended, ticket.over = ticket.over, True
        if ticket.told or not ended:
            self._reporter.report(Cancelled(ticket.request.key))
        if ticket.assignment is not None and not ended:
            self._spawn(self._abort(ticket.assignment.key))

    @property
    def names(self) -> dict[str, str]:
        """The client's name of every open request, by the router's id."""
        return {ticket.request.id: ticket.name for ticket in self._tickets.values()}

    async def run(self) -> None:
        """Carry until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._line.run())
            for engine in self._engines.values():
                group.create_task(self._follow(engine))

    # -- coordinator ---------------------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        key = key_of(answer)
        ticket = self._tickets.get(key)
        if ticket is None or ticket.over:
            if isinstance(answer, Assign):  # its end and the loss of its device crossed: the room must not stay taken
                self._reporter.report(Cancelled(key))
            return
        if isinstance(answer, Assign):
            self._assign(ticket, answer)
        else:
            ticket.over = True
        ticket.decide(answer)

    def _assign(self, ticket: Ticket, assign: Assign) -> None:
        known = ticket.assignment
        if known is not None and known.key.attempt >= assign.key.attempt:
            # another one of the same attempt is of a coordinator that restarted and did not know that it runs
            ticket.told = ticket.told or known.key != assign.key
            return
        if ticket.received_tokens:  # another ingress told first that its device is lost
            self._fail_midway(ticket)
            return
        ticket.assignment = assign
        if not self._to_start:
            asyncio.get_running_loop().call_soon(self._start)
        work = Work(assign.key, ticket.request.prompt_tokens, ticket.output_tokens)
        self._to_start.setdefault(assign.key.device_id, []).append(work)

    def _report(self) -> Report:
        now_s = time.monotonic()
        tickets = [ticket for ticket in self._tickets.values() if not ticket.over]
        for ticket in tickets:
            ticket.told = ticket.told or ticket.assignment is not None
        return Report(
            tuple(Submission(t.request, now_s - t.came_s) for t in tickets if t.assignment is None),
            tuple(InFlight(t.assignment.key, t.request) for t in tickets if t.assignment is not None),
            tuple(self._devices.values()),
            tuple(self._lost.values()),
        )

    # -- engines -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        to_start, self._to_start = self._to_start, {}
        for device_id, works in to_start.items():
            wanted = [work for work in works if self._is_current(work.key)]
            if wanted:
                self._spawn(self._start_on(device_id, wanted))

    async def _start_on(self, device_id: str, works: list[Work]) -> None:
        try:
            await self._engines[device_id].start.remote(self._ingress_id, works)
        except RayError as error:
            _log.warning("engine %s did not take %d requests: %s", device_id, len(works), type(error).__name__)
            await self._refused(works, type(error).__name__)

    async def _refused(self, works: list[Work], reason: str) -> None:
        """They wait again, also for a coordinator that is told anew what waits and what runs."""
        await self._reporter.tell(*(ReplicaRefused(work.key, reason) for work in works))
        for work in works:
            if self._is_current(work.key):
                ticket = self._tickets[work.key.request_key]
                ticket.assignment = None
                self._submit_again(ticket)

    async def _abort(self, key: AssignmentKey) -> None:
        try:
            await self._engines[key.device_id].abort.remote([key])
        except RayError:
            _log.info("engine %s is gone and %s with it", key.device_id, key.request_id)

    async def _follow(self, engine: Any) -> None:
        """Read the engine's tokens; when it breaks off, its device is lost until it announces itself again."""
        while True:
            await deliver(engine.forget.remote, self._ingress_id)
            device: Device = await deliver(engine.announce.remote)
            self._devices[device.id] = device
            self._lost.pop(device.id, None)
            tokens = engine.tokens.options(num_returns="streaming")
            try:
                await read_streams(partial(tokens.remote, self._ingress_id, device.incarnation), self._receive)
            except RayError as error:
                _log.warning("engine %s broke off: %s", device.id, type(error).__name__)
            del self._devices[device.id]
            self._lost[device.id] = DeviceLost(device.id, device.incarnation)
            again = self._orphan(device)
            await self._reporter.tell(self._lost[device.id])
            for ticket in again:
                self._submit_again(ticket)

    def _orphan(self, device: Device) -> list[Ticket]:
        """Requests on a lost device, which wait again; those whose client already has tokens fail."""
        again = []
        for ticket in self._tickets.values():
            if ticket.over or ticket.assignment is None or ticket.assignment.key.device_id != device.id:
                continue
            if ticket.received_tokens:
                self._fail_midway(ticket)
            else:
                ticket.assignment = None
                again.append(ticket)
        return again

    def _fail_midway(self, ticket: Ticket) -> None:
        self._reporter.report(Cancelled(ticket.request.key))
        ticket.fail(RuntimeShellError("the engine was lost after the first token"))

    def _receive(self, tokens: Tokens) -> None:
        if self._is_current(tokens.key):
            self._tickets[tokens.key.request_key].push(tokens)

    def _is_current(self, key: AssignmentKey) -> bool:
        ticket = self._tickets.get(key.request_key)
        return ticket is not None and ticket.assignment is not None and ticket.assignment.key == key

    def _submit_again(self, ticket: Ticket) -> None:
        """A coordinator that restarted may not know that it waits."""
        self._line.submit(Submission(ticket.request, time.monotonic() - ticket.came_s))

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        task = background(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
