"""A stepped engine: every iteration on its own, every sequence looked at. The readable twin of `sim.replica`.

It offers what the event loop uses of a replica, so both can run under the same loop and must agree exactly.
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.latency import to_fs, to_s
from olp_ray.sim.prefix_cache import PrefixCache
from olp_ray.sim.replica import Boundary


def blocks_for(tokens: int, block: int) -> int:
    return math.ceil(tokens / block)


class PlainReplica:
    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.waiting: list[Sequence] = []
        self.batch: list[Sequence] = []  # in order of admission
        self.chunks: dict[str, int] = {}
        self.first_tokens: list[Sequence] = []
        self.iteration = 0
        self.busy_fs = 0
        self.end_s = math.inf
        self.clock_fs = 0
        self.span_fs = 0
        self.time = spec.time
        self.cache = None if spec.prefix_block_tokens is None else PrefixCache(spec.prefix_block_tokens)

    # context is the tokens in the cache; pending the prefill tokens still to compute

    @property
    def running(self) -> dict[int, Sequence]:
        return dict(enumerate(self.batch))

    @property
    def idle(self) -> bool:
        return self.span_fs == 0

    @property
    def decoding(self) -> list[Sequence]:
        return [s for s in self.batch if s.pending == 0]

    @property
    def decode_count(self) -> int:
        return len(self.decoding)

    @property
    def used_blocks(self) -> int:
        held = 0
        for s in self.batch:
            held += s.blocks if s.pending else blocks_for(s.context, self.spec.block_tokens)
        return held

    def kv_tokens(self, now_s: float) -> int:
        return self.used_blocks * self.spec.block_tokens

    def enqueue(self, sequence: Sequence, now_s: float) -> None:
        capacity = self.spec.blocks * self.spec.block_tokens
        if not sequence.kv_ready:
            sequence.prompt_tokens = max(1, sequence.prompt_tokens)
        sequence.output_tokens = min(sequence.output_tokens, capacity - sequence.prompt_tokens)
        self.waiting.append(sequence)

    def growth(self) -> int:
        return sum(s.context % self.spec.block_tokens == 0 for s in self.decoding)

    def begin(self, now_s: float) -> Boundary:
        boundary = Boundary()
        spec = self.spec
        if not self.batch and not self.waiting:
            return boundary
        if self.end_s == math.inf:
            self.clock_fs = to_fs(now_s)
        swapped = 0
        while self.used_blocks + self.growth() > spec.blocks:
            victim = self.batch.pop()
            victim.preemptions += 1
            swap = spec.swap_token_fs is not None and victim.pending == 0
            victim.kv_ready = victim.pending == 0 and (swap or not spec.recompute)
            victim.pending = 0
            if swap:
                swapped += victim.context
            self.unpin(victim)
            self.waiting.insert(0, victim)
            boundary.preempted.append(victim)
        left = spec.token_budget - self.decode_count
        self.chunks = {}
        for s in self.batch:
            if s.pending and left:
                self.chunks[s.key.request_id] = min(s.pending, left)
                left -= min(s.pending, left)
        while self.waiting and not boundary.preempted and left > 0 and len(self.batch) < spec.slots:
            s = self.waiting[0]
            context = s.prompt_tokens + s.generated
            context -= s.kv_ready and spec.recompute
            need = blocks_for(context, spec.block_tokens) + (s.kv_ready and context % spec.block_tokens == 0)
            reserve = spec.watermark_blocks if self.batch else 0
            if self.used_blocks + self.growth() + need + reserve > spec.blocks:
                break
            self.waiting.pop(0)
            self.batch.append(s)
            boundary.started.append(s)
            if s.kv_ready:
                s.context, s.pending = context, 0
                left -= 1
                if s.preemptions and spec.swap_token_fs is not None:
                    swapped += context
            else:
                s.blocks = blocks_for(context, spec.block_tokens)
                s.context = self.find_prefix(s, context)
                s.pending = context - s.context
                self.chunks[s.key.request_id] = min(s.pending, left)
                left -= min(s.pending, left)
        self.trim()
        prefill = sum(self.chunks.values())
        chunked = [(s.context, self.chunks[s.key.request_id]) for s in self.batch if s.key.request_id in self.chunks]
        double_pairs = sum(p * (2 * prefix + p) for prefix, p in chunked)
        kv = sum(s.context + 1 for s in self.decoding)
        self.span_fs = self.time.iteration_fs(self.decode_count, kv, prefill, double_pairs)
        self.span_fs += swapped * (spec.swap_token_fs or 0)
        self.end_s = to_s(self.clock_fs + self.span_fs)
        return boundary

    def complete(self) -> list[Sequence]:
        growth = self.growth()
        self.clock_fs += self.span_fs
        self.busy_fs += self.span_fs
        self.span_fs = 0
        self.iteration += 1
        self.trim(growth)
        by_prefill, by_decode = [], []
        self.first_tokens = []
        for s in list(self.batch):
            if s.pending:
                chunk = self.chunks.get(s.key.request_id, 0)
                s.context += chunk
                s.pending -= chunk
                if s.pending == 0 and chunk:
                    s.generated += 1
                    self.first_tokens.append(s)
                    self.pin(s, len(s.prefix_blocks))
                    if s.generated == s.output_tokens:
                        by_prefill.append(s)
            else:
                s.context += 1
                s.generated += 1
                if s.generated == s.output_tokens:
                    by_decode.append(s)
        finished = [*by_prefill, *by_decode]
        self.batch = [s for s in self.batch if s not in finished]
        for s in finished:
            self.unpin(s)
        assert self.used_blocks <= self.spec.blocks
        assert len(self.batch) <= self.spec.slots
        if not self.batch and not self.waiting:
            self.end_s = math.inf
        return finished

    def set_speed(self, speed: float, now_s: float) -> None:
        self.time = self.spec.time.scaled(speed)

    def find_prefix(self, s: Sequence, context: int) -> int:
        if self.cache is None:
            return 0
        blocks = self.cache.match_blocks(s.prefix_blocks)
        self.pin(s, blocks)
        s.cached_tokens = min(blocks * self.spec.prefix_block_tokens, context - 1)
        return s.cached_tokens

    def pin(self, s: Sequence, blocks: int) -> None:
        if self.cache is not None:
            self.cache.pin(s.prefix_blocks[s.pinned : blocks])
            s.pinned = blocks

    def unpin(self, s: Sequence) -> None:
        if self.cache is not None:
            self.cache.unpin(s.prefix_blocks[: s.pinned])
            s.pinned = 0

    def trim(self, growth: int = 0) -> None:
        if self.cache is not None:
            self.cache.trim((self.spec.blocks - self.used_blocks - growth) * self.spec.block_tokens)

    def progress(self, now_s: float) -> tuple[tuple, np.ndarray]:
        return tuple(s.key for s in self.decoding), np.array([s.generated for s in self.decoding], dtype=np.int64)
