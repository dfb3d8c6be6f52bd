"""A stepped engine: every iteration on its own, every sequence looked at. The readable twin of `sim.replica`.

It offers what the event loop uses of a replica, so both can run under the same loop and must agree exactly.
"""

from __future__ import annotations

import math

import numpy as np

from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.latency import to_fs, to_s
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
        while self.used_blocks + self.growth() > spec.blocks:
            victim = self.batch.pop()
            victim.preemptions += 1
            victim.pending = 0
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
            compute = spec.prefill or (spec.recompute and s.preemptions > 0)
            context = s.prompt_tokens + s.generated - (not compute and spec.recompute)
            if compute:
                context = max(1, context)
            need = blocks_for(context, spec.block_tokens) + (not compute and context % spec.block_tokens == 0)
            reserve = spec.watermark_blocks if self.batch else 0
            if self.used_blocks + self.growth() + need + reserve > spec.blocks:
                break
            self.waiting.pop(0)
            self.batch.append(s)
            boundary.started.append(s)
            if compute:
                s.blocks = blocks_for(context, spec.block_tokens)
                s.context, s.pending = 0, context
                self.chunks[s.key.request_id] = min(s.pending, left)
                left -= min(s.pending, left)
            else:
                s.context, s.pending = context, 0
                left -= 1
        prefill = sum(self.chunks.values())
        chunked = [(s.context, self.chunks[s.key.request_id]) for s in self.batch if s.key.request_id in self.chunks]
        double_pairs = sum(p * (2 * prefix + p) for prefix, p in chunked)
        kv = sum(s.context + 1 for s in self.decoding)
        self.span_fs = spec.time.iteration_fs(self.decode_count, kv, prefill, double_pairs)
        self.end_s = to_s(self.clock_fs + self.span_fs)
        return boundary

    def complete(self) -> list[Sequence]:
        self.clock_fs += self.span_fs
        self.busy_fs += self.span_fs
        self.span_fs = 0
        self.iteration += 1
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
                    if s.generated == s.output_tokens:
                        by_prefill.append(s)
            else:
                s.context += 1
                s.generated += 1
                if s.generated == s.output_tokens:
                    by_decode.append(s)
        finished = [*by_prefill, *by_decode]
        self.batch = [s for s in self.batch if s not in finished]
        assert self.used_blocks <= self.spec.blocks
        assert len(self.batch) <= self.spec.slots
        if not self.batch and not self.waiting:
            self.end_s = math.inf
        return finished

    def progress(self, now_s: float) -> tuple[tuple, np.ndarray]:
        return tuple(s.key for s in self.decoding), np.array([s.generated for s in self.decoding], dtype=np.int64)
