"""Which prompt prefixes each device probably still holds: an approximate index, bounded in memory.

Counts where requests were sent; what an engine evicted in the meantime it can not know, so a hit is a guess that
only shifts reward and price, never feasibility.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.types import Request


class PrefixIndex:
    """Least recently used block hashes per device id. Hashes of a chain name the whole prefix up to their block."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._blocks: dict[str, OrderedDict[int, None]] = {}

    @property
    def is_empty(self) -> bool:
        return not self._blocks

    def add(self, device_id: str, request: Request, kv_tokens: int) -> None:
        """The request was sent there; a device keeps at most kv_tokens worth of blocks."""
        if not request.prefix_blocks:
            return
        held = self._blocks.setdefault(device_id, OrderedDict())
        for block in reversed(request.prefix_blocks):
            held[block] = None
            held.move_to_end(block)
        while len(held) > max(kv_tokens // self.block_tokens, 1):
            held.popitem(last=False)

    def drop(self, device_id: str) -> None:
        """Forget a device that is gone."""
        self._blocks.pop(device_id, None)

    def hit_tokens(self, requests: Sequence[Request], device_ids: Sequence[str]) -> np.ndarray:
        """Prompt tokens of each request probably cached on each device, (J, G)."""
        hits = np.zeros((len(requests), len(device_ids)))
        held = [(g, self._blocks[name]) for g, name in enumerate(device_ids) if self._blocks.get(name)]
        if not held:
            return hits
        for j, request in enumerate(requests):
            if request.prefix_blocks:
                for g, blocks in held:
                    known = _leading(request.prefix_blocks, blocks) * self.block_tokens
                    hits[j, g] = min(known, request.prompt_tokens)
        return hits

    def snapshot(self) -> dict[str, Any]:
        return {name: list(blocks) for name, blocks in self._blocks.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._blocks = {name: OrderedDict.fromkeys(blocks) for name, blocks in state.items()}


def _leading(chain: Sequence[int], blocks: Mapping[int, None]) -> int:
    """How many leading hashes of the chain are held. Blocks age from the tail, so a held block's head is held too and
    a binary search finds the end."""
    low, high = 0, len(chain)
    while low < high:
        middle = (low + high) // 2
        if chain[middle] in blocks:
            low = middle + 1
        else:
            high = middle
    return low
