import asyncio

import pytest

from olp_ray.runtime.client import IngressLine
from olp_ray.runtime.messages import Refused, Report

pytestmark = pytest.mark.ray_local

ANSWER = Refused(("r", "mixed"), "EventError", "no")


class FailingOnce:
    """Answers as a coordinator does, except that its first stream fails while its process lives on."""

    def __init__(self):
        self._number, self._streams = None, 0

    async def hello(self, ingress_id, report):
        self._number = report.number

    async def submit(self, ingress_id, submissions):
        return self._number, []

    async def report(self, events):
        pass

    async def answers(self, ingress_id, number):
        self._streams += 1
        if self._streams == 1:
            raise ValueError("a stream that fails")
        yield [ANSWER]
        await asyncio.Event().wait()

    async def last_hello(self):
        return self._number


def test_a_stream_that_fails_though_the_coordinator_lives_is_opened_again_after_a_hello(ray_local):
    coordinator = ray_local.remote(FailingOnce).options(num_cpus=0).remote()

    async def main():
        answered = asyncio.Event()
        got = []
        line = IngressLine(coordinator, "i", lambda answer: (got.append(answer), answered.set()), Report)
        running = asyncio.ensure_future(line.run())
        try:
            await asyncio.wait(
                {running, asyncio.ensure_future(answered.wait())}, timeout=20.0, return_when="FIRST_COMPLETED"
            )
            return running.done(), got, await coordinator.last_hello.remote()
        finally:
            running.cancel()

    assert asyncio.run(main()) == (False, [ANSWER], 2)
    ray_local.kill(coordinator)
