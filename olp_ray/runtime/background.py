"""Tasks that outlive the actor call in which they were started."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any


def background(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run beside everything else, as nobody's child.

    Ray cancels what a cancelled actor call has started, by context: a task that copied the context of one client's
    request would lose its own calls when that client leaves. So it starts with an empty context.
    """
    return asyncio.get_running_loop().create_task(work, context=contextvars.Context())
