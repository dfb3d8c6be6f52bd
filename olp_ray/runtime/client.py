"""An ingress's or engine's line to the coordinator: batched, in order, repeated until taken, and opened again.

Nothing here decides; it only makes sure that what was said arrives, also across a restart of the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from ray.exceptions import ActorDiedError, RayActorError, RayError

from olp_ray.core.types import Event
from olp_ray.errors import RuntimeShellError
from olp_ray.runtime.lines import BEAT_S
from olp_ray.runtime.messages import Answer, Report, Submission

_log = logging.getLogger(__name__)
_RETRY_S = 0.05
_SPACING_S = 0.005  # between two reports: the first goes at once, and what comes meanwhile goes with the next


class Reporter:
    """Sends events to the coordinator in batches; what is reported while a call is under way goes with the next."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self._events: list[Event] = []
        self._filled = asyncio.Event()
        self.calling = asyncio.Lock()  # held until a call is answered

    def report(self, *events: Event) -> None:
        self._events.extend(events)
        self._filled.set()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._filled.wait()
            self._filled.clear()
            events, self._events = self._events, []
            await self.tell(*events)
            await asyncio.sleep(_SPACING_S)

    async def tell(self, *events: Event) -> None:
        """Report at once, and return when the coordinator has it."""
        async with self.calling:
            await deliver(self._coordinator.report.remote, events)


class IngressLine:
    """Submits requests for `ingress_id`, reports through `reporter`, and gives every answer to on_answer.

    What is decided at once comes with the reply, the rest over a stream: so of two assignments of one request the
    older, with the smaller attempt, may come last. in_flight returns the `Report` that the coordinator is told first,
    and again whenever an answer may have been lost: its process is a new one, it has given this ingress up, or the
    stream broke. No other call is under way meanwhile, so the report says what the coordinator should know by then.
    """

    def __init__(
        self,
        coordinator: Any,
        ingress_id: str,
        on_answer: Callable[[Answer], None],
        in_flight: Callable[[], Report],
    ) -> None:
        self._coordinator = coordinator
        self._ingress_id = ingress_id
        self._on_answer = on_answer
        self._in_flight = in_flight
        self._submissions: list[Submission] = []
        self._filled = asyncio.Event()
        self._submitting = asyncio.Lock()
        self._number = 0  # of the last report
        self._reading: asyncio.Task[None] | None = None
        self.reporter = Reporter(coordinator)

    def submit(self, submission: Submission) -> None:
        self._submissions.append(submission)
        self._filled.set()

    async def run(self) -> None:
        """Submit, report and listen until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send())
            group.create_task(self._listen())
            group.create_task(self.reporter.run())

    async def _send(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BEAT_S):
                    await self._filled.wait()
            self._filled.clear()
            async with self._submitting:
                batch, self._submissions = self._submissions, []
                reply = await deliver(self._coordinator.submit.remote, self._ingress_id, batch)
                number, answers = reply or (None, ())
                for answer in answers:
                    self._on_answer(answer)
                if self._reading is not None and number != self._number:
                    self._reading.cancel()  # a broken stream is told later than calls come through again

    async def _listen(self) -> None:
        answers = self._coordinator.answers.options(num_returns="streaming", max_task_retries=0)
        while True:
            await self._say_hello()
            stream = partial(answers.remote, self._ingress_id, self._number)
            reading = self._reading = asyncio.ensure_future(read_streams(stream, self._on_answer))
            try:
                await asyncio.wait({reading})
                if not reading.cancelled():
                    reading.result()
            except RayActorError as error:  # `deliver` tells whether it comes back
                _log.warning("ingress %s lost the coordinator: %s", self._ingress_id, type(error).__name__)
            except RayError:  # the coordinator is there, and its answers are lost
                _log.exception("the stream to ingress %s failed", self._ingress_id)
                await asyncio.sleep(_RETRY_S)
            finally:
                reading.cancel()

    async def _say_hello(self) -> None:
        async with self._submitting, self.reporter.calling:
            await deliver(self._hello)

    def _hello(self) -> Any:
        self._number += 1
        report = dataclasses.replace(self._in_flight(), number=self._number)
        return self._coordinator.hello.remote(self._ingress_id, report)


async def read_streams(open_stream: Callable[[], Any], take: Callable[[Any], None]) -> None:
    """Give every item to `take`, one stream of batches after the other, until one is empty.

    Raises `RayActorError` when the actor at the other end dies, another `RayError` when the stream fails otherwise.
    """
    while True:
        batches = 0
        async for reference in open_stream():
            batches += 1
            for item in await reference:
                take(item)
        if not batches:
            await asyncio.sleep(_RETRY_S)
            return


async def deliver(call: Callable[..., Any], *arguments: Any) -> Any:
    """Make a call of an actor until it is answered; an actor that restarts is waited for.

    Raises `RuntimeShellError` when it is gone for good. A call that the actor itself fails on is logged.
    """
    while True:
        try:
            return await call(*arguments)
        except ActorDiedError as error:
            raise RuntimeShellError(f"the actor is gone for good: {error}") from error
        except RayActorError:
            await asyncio.sleep(_RETRY_S)
        except RayError:
            _log.exception("the actor failed on a call")
            return None
