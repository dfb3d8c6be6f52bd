"""Messages to subscribers, in batches, over one long-lived stream each. Nothing here knows what they mean."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

_STREAM_BATCHES = 500  # Ray keeps a few hundred bytes for each batch of a stream until the stream ends
_MOST_KEPT = 100_000  # messages for a subscriber that does not read; older ones are dropped and counted


class Outbox:
    """`put` from the event loop's thread; each subscriber reads its own stream, of which the newest one counts."""

    def __init__(self) -> None:
        self._boxes: dict[str, _Box] = {}
        self.dropped = 0

    def put(self, subscriber: str, message: Any) -> None:
        box = self._box(subscriber)
        if len(box.messages) == _MOST_KEPT:
            box.messages.popleft()
            self.dropped += 1
        box.messages.append(message)
        box.filled.set()

    async def stream(self, subscriber: str) -> AsyncIterator[list[Any]]:
        """Batches of everything put since the last one.

        Ends after some hundred batches, to be opened again, and when the subscriber opens another one.
        """
        box = self._box(subscriber)
        box.reader += 1
        reader = box.reader
        box.filled.set()
        left = _STREAM_BATCHES
        while left and box.reader == reader:
            if batch := self.take(subscriber):
                left -= 1
                yield batch
                continue
            box.filled.clear()
            await box.filled.wait()

    def take(self, subscriber: str) -> list[Any]:
        """Everything kept for the subscriber, which is then no longer kept."""
        box = self._box(subscriber)
        batch, box.messages = list(box.messages), deque()
        return batch

    def take_if(self, subscriber: str, wanted: Callable[[Any], bool]) -> list[Any]:
        """Only messages that are wanted, which are then no longer kept."""
        batch = self.take(subscriber)
        self._box(subscriber).messages.extend(message for message in batch if not wanted(message))
        return [message for message in batch if wanted(message)]

    def hang_up(self, subscriber: str) -> None:
        """End the subscriber's stream: what nobody has read yet is kept for the next one."""
        box = self._box(subscriber)
        box.reader += 1
        box.filled.set()

    def forget(self, subscriber: str) -> None:
        """Drop what is kept for a subscriber, and end its stream."""
        if subscriber in self._boxes:
            self.hang_up(subscriber)
            del self._boxes[subscriber]

    def _box(self, subscriber: str) -> _Box:
        return self._boxes.setdefault(subscriber, _Box())


class _Box:
    def __init__(self) -> None:
        self.messages: deque[Any] = deque()
        self.filled = asyncio.Event()
        self.reader = 0
