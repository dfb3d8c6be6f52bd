"""The ingress's books, without a coordinator."""

import asyncio

import pytest

from olp_ray.core.types import Assign, AssignmentKey, Cancelled, Device, ReplicaRefused, Request, Stage
from olp_ray.errors import RuntimeShellError
from olp_ray.serve.dispatch import Dispatcher
from olp_ray.serve.engines.emulated import Tokens, Work


def test_an_older_assignment_that_comes_late_does_not_replace_the_newer():
    """What is decided at once comes with a reply, a second attempt over the stream: they may cross."""

    async def main():
        dispatcher = Dispatcher("i", coordinator=None, engines={})
        request = Request("r", 0.0, 10, 20.0)
        ticket = dispatcher.open(request, 5, "name")
        found = []
        for device, attempt in (("d1", 1), ("d0", 0), ("d2", 2)):
            key = AssignmentKey(request.id, Stage.MIXED, device, 0, attempt)
            dispatcher._assign(ticket, Assign(key, request))
            found.append(ticket.assignment.key.device_id)
        dispatcher._to_start.clear()
        return found

    assert asyncio.run(main()) == ["d1", "d1", "d2"]


@pytest.mark.parametrize("told", [True, False])
def test_a_coordinator_that_was_told_that_a_request_runs_is_told_of_its_end(told):
    """Its engine may have told the end to one that died since."""

    async def main():
        dispatcher = Dispatcher("i", coordinator=None, engines={})
        request = Request("r", 0.0, 10, 20.0)
        ticket = dispatcher.open(request, 5, "name")
        key = AssignmentKey(request.id, Stage.MIXED, "d0", 0, 0)
        dispatcher._assign(ticket, Assign(key, request))
        if told:
            assert [flight.key for flight in dispatcher._report().in_flight] == [key]
        dispatcher._receive(Tokens(key, 5, True))
        dispatcher.close(ticket)
        return dispatcher._reporter._events

    assert asyncio.run(main()) == ([Cancelled(Request("r", 0.0, 10, 20.0).key)] if told else [])


def test_requests_of_a_lost_device_that_have_no_token_yet_are_submitted_again():
    """A coordinator that restarted may not know them."""

    async def main():
        dispatcher = Dispatcher("i", coordinator=None, engines={})
        tickets = [dispatcher.open(Request(name, 0.0, 10, 20.0), 5, name) for name in "abc"]
        for ticket, device in zip(tickets, ("d0", "d0", "d1"), strict=True):
            key = AssignmentKey(ticket.request.id, Stage.MIXED, device, 0, 0)
            dispatcher._assign(ticket, Assign(key, ticket.request))
        dispatcher._receive(Tokens(tickets[1].assignment.key, 1, False))
        again = dispatcher._orphan(Device("d0", 2, 1000, 1.0))
        return [ticket.name for ticket in again], [ticket.assignment is None for ticket in tickets], tickets[1].over

    assert asyncio.run(main()) == (["a"], [True, False, False], True)


class Heard:
    """Stands for a handle of the coordinator: keeps what is told, and does something meanwhile."""

    def __init__(self, meanwhile=lambda: None):
        self.events = []
        self.report = self
        self._meanwhile = meanwhile

    async def remote(self, events):
        self.events += events
        self._meanwhile()


def test_a_request_that_its_engine_did_not_take_waits_again_in_what_the_coordinator_is_told():
    """The assignment that follows the refusal may be lost."""

    async def main():
        coordinator = Heard()
        dispatcher = Dispatcher("i", coordinator, engines={})
        ticket = dispatcher.open(Request("r", 0.0, 10, 20.0), 5, "name")
        key = AssignmentKey("r", Stage.MIXED, "d0", 0, 0)
        dispatcher._assign(ticket, Assign(key, ticket.request))
        dispatcher._to_start.clear()
        dispatcher._line._submissions.clear()
        await dispatcher._refused([Work(key, 10, 5)], "RayActorError")
        report = dispatcher._report()
        again = [each.request.id for each in dispatcher._line._submissions]
        return coordinator.events, [each.request.id for each in report.waiting], report.in_flight, again

    refused, waiting, in_flight, again = asyncio.run(main())
    assert refused == [ReplicaRefused(AssignmentKey("r", Stage.MIXED, "d0", 0, 0), "RayActorError")]
    assert waiting == ["r"]
    assert in_flight == ()
    assert again == ["r"]  # a coordinator that restarted may not know it


def test_a_request_that_is_assigned_anew_while_its_refusal_is_told_keeps_that_assignment():
    async def main():
        request = Request("r", 0.0, 10, 20.0)
        old, new = (AssignmentKey("r", Stage.MIXED, "d0", 0, attempt) for attempt in (0, 1))
        coordinator = Heard(lambda: dispatcher._take(Assign(new, request)))
        dispatcher = Dispatcher("i", coordinator, engines={})
        ticket = dispatcher.open(request, 5, "name")
        dispatcher._take(Assign(old, request))
        dispatcher._line._submissions.clear()
        await dispatcher._refused([Work(old, 10, 5)], "RayActorError")
        return ticket.assignment.key, dispatcher._line._submissions

    key, again = asyncio.run(main())
    assert key.attempt == 1
    assert again == []


def test_of_two_assignments_that_come_at_once_only_the_newer_is_started():
    async def main():
        started = []

        class Engine:
            start = property(lambda self: self)

            async def remote(self, ingress_id, works):
                started.extend(work.key.attempt for work in works)

        dispatcher = Dispatcher("i", coordinator=None, engines={"d0": Engine(), "d1": Engine()})
        request = Request("r", 0.0, 10, 20.0)
        dispatcher.open(request, 5, "name")
        for attempt in (0, 1):
            dispatcher._take(Assign(AssignmentKey("r", Stage.MIXED, f"d{attempt}", 0, attempt), request))
        await asyncio.sleep(0.01)
        return started

    assert asyncio.run(main()) == [1]


def test_what_runs_is_not_started_elsewhere_by_a_coordinator_that_does_not_know_it_and_is_told_of_its_end():
    async def main():
        dispatcher = Dispatcher("i", coordinator=None, engines={})
        request = Request("r", 0.0, 10, 20.0)
        ticket = dispatcher.open(request, 5, "name")
        runs, other = (AssignmentKey("r", Stage.MIXED, device, 0, 0) for device in ("d1", "d0"))
        dispatcher._take(Assign(runs, request))
        dispatcher._take(Assign(other, request))
        devices = list(dispatcher._to_start)
        dispatcher._to_start.clear()
        dispatcher._receive(Tokens(runs, 5, True))
        dispatcher.close(ticket)
        return devices, ticket.received_tokens, dispatcher._reporter._events

    devices, received_tokens, events = asyncio.run(main())
    assert devices == ["d1"]
    assert received_tokens == 5
    assert events == [Cancelled(Request("r", 0.0, 10, 20.0).key)]


def test_an_answer_that_is_under_way_fails_when_it_is_assigned_anew_before_its_ingress_notices_the_loss():
    async def main():
        dispatcher = Dispatcher("i", coordinator=None, engines={})
        request = Request("r", 0.0, 10, 20.0)
        ticket = dispatcher.open(request, 20, "name")
        old, new = (AssignmentKey("r", Stage.MIXED, f"d{attempt}", 0, attempt) for attempt in (0, 1))
        dispatcher._take(Assign(old, request))
        dispatcher._to_start.clear()
        dispatcher._receive(Tokens(old, 7, False))
        dispatcher._take(Assign(new, request))
        tokens = ticket.tokens()
        first = await anext(tokens)
        with pytest.raises(RuntimeShellError, match="lost after the first token"):
            await asyncio.wait_for(anext(tokens), 2.0)
        return first, dispatcher._to_start, dispatcher._reporter._events

    assert asyncio.run(main()) == (7, {}, [Cancelled(Request("r", 0.0, 10, 20.0).key)])
