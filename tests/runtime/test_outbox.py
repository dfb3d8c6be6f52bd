import asyncio
from itertools import count

from olp_ray.runtime.outbox import Outbox


async def collect(outbox, wanted):
    """Messages of as many streams as it takes, and how many streams that were."""
    got, streams = [], 0
    while len(got) < wanted:
        streams += 1
        async for batch in outbox.stream("a"):
            got += batch
            if len(got) >= wanted:
                break
    return got, streams


def test_a_stream_ends_now_and_then_and_the_next_one_goes_on():
    async def main():
        outbox = Outbox()

        async def fill():
            for number in range(1200):
                outbox.put("a", number)
                await asyncio.sleep(0)

        filling = asyncio.ensure_future(fill())
        got = await collect(outbox, 1200)
        await filling
        return got

    got, streams = asyncio.run(main())
    assert got == list(range(1200))
    assert 1 < streams < 10


def test_everything_put_since_the_last_batch_comes_in_one():
    async def main():
        outbox = Outbox()
        numbers = count()
        for _ in range(3):
            outbox.put("a", next(numbers))
        outbox.put("b", "other")
        return await anext(outbox.stream("a"))

    assert asyncio.run(main()) == [0, 1, 2]


def test_only_the_newest_stream_of_a_subscriber_is_served():
    async def main():
        outbox = Outbox()
        outbox.put("a", 1)
        old = outbox.stream("a")
        assert await anext(old) == [1]
        new = outbox.stream("a")
        waiting = asyncio.ensure_future(anext(new))
        await asyncio.sleep(0)
        assert [batch async for batch in old] == []
        outbox.put("a", 2)
        return await waiting

    assert asyncio.run(main()) == [2]


def test_only_what_is_wanted_is_taken_and_hanging_up_keeps_the_rest_for_the_next_stream():
    async def main():
        outbox = Outbox()
        reading = asyncio.ensure_future(anext(outbox.stream("a"), None))
        await asyncio.sleep(0)
        outbox.hang_up("a")
        for number in range(5):
            outbox.put("a", number)
        taken = outbox.take_if("a", lambda number: number % 2)
        return await reading, taken, await anext(outbox.stream("a"))

    assert asyncio.run(main()) == (None, [1, 3], [0, 2, 4])
