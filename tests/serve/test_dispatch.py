"""The ingress's books, without a coordinator."""

import asyncio

from olp_ray.core.types import Assign, AssignmentKey, Request, Stage
from olp_ray.serve.dispatch import Dispatcher


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
