"""Tasks that outlive the actor call in which they were started, and what they do again and again."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


def background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run beside everything else, as nobody's child.

    Ray cancels what a cancelled actor call has started, by context: a task that copied the context of one client's
    request would lose its own calls when that client leaves. So it starts with an empty context.
    """
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())


async def repeat(every_s: float, work: Callable[[], Awaitable[None]], failed: Callable[[Exception], None]) -> None:
    """Do it every so often until cancelled; an error is handed to failed, and the next time is tried."""
    while True:
        await asyncio.sleep(every_s)
        try:
            await work()
        except Exception as error:
            failed(error)
