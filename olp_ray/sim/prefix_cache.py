"""Prompts that an engine still has in its KV memory, by the hashes of their leading blocks.

Blocks that a running sequence uses are pinned. The others live in free KV memory, the least recently used goes first
when that gets short. A running sequence is charged for its whole prompt: that two of them share blocks saves work
here, not memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Hashes of blocks of block_tokens tokens; a hash stands for its block and all before it."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._pins: dict[int, int] = {}
        self._loose: OrderedDict[int, None] = OrderedDict()  # least recently used first

    def match_blocks(self, hashes: Sequence[int]) -> int:
        """How many leading blocks are here."""
        count = 0
        for block in hashes:
            if block not in self._pins and block not in self._loose:
                break
            count += 1
        return count

    def pin(self, hashes: Sequence[int]) -> None:
        """These blocks are in use, and here."""
        for block in hashes:
            self._pins[block] = self._pins.get(block, 0) + 1
            self._loose.pop(block, None)

    def unpin(self, hashes: Sequence[int]) -> None:
        """One user less; the prompt's last block becomes the first to go."""
        for block in reversed(hashes):
            self._pins[block] -= 1
            if self._pins[block] == 0:
                del self._pins[block]
                self._loose[block] = None

    def trim(self, free_tokens: int) -> None:
        """Forget what free KV memory can not hold."""
        while len(self._loose) * self._block_tokens > free_tokens:
            self._loose.popitem(last=False)
