import asyncio

import pytest

from olp_ray.runtime.background import background, repeat


def test_what_is_repeated_goes_on_after_an_error_which_is_told_and_ends_when_cancelled():
    async def main():
        told, done = [], asyncio.Event()
        outcomes = iter([ValueError("first"), None, KeyError("third"), None])

        async def work():
            outcome = next(outcomes, "done")
            if outcome == "done":
                done.set()
            elif outcome is not None:
                raise outcome

        task = background(repeat(0.001, work, told.append))
        await asyncio.wait_for(done.wait(), 5.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return [type(error) for error in told]

    assert asyncio.run(main()) == [ValueError, KeyError]
