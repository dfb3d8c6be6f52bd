"""A simulated engine: continuous batching with chunked prefill, block-rounded KV, eviction and a prefix cache.

The rule of one iteration, as in current engines:

1. Every decoding sequence gets one token. While their new KV blocks do not fit, the latest admitted sequence is
   evicted to the front of the engine's queue; later it computes its prompt and its tokens again, or comes back from
   host memory.
2. What is left of the token budget goes to prefill chunks, in order of admission.
3. With budget left and nothing evicted, the queue's head is admitted while slots and blocks for its whole prompt are
   there (first in, first out: a head that does not fit blocks those behind it).

Between changes of membership nothing has to be looked at: durations are an arithmetic progression, finishes and KV
limits are known in advance. So the replica jumps over a whole stretch at once, and a newcomer cuts the stretch at the
next iteration boundary. Cost grows with events, not with tokens. Nothing here decides where a request goes.
"""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from olp_ray.core.types import AssignmentKey
from olp_ray.errors import SimulationError
from olp_ray.sim.engine import EngineSpec, Sequence
from olp_ray.sim.latency import Stretch, to_fs, to_s
from olp_ray.sim.prefix_cache import PrefixCache


@dataclass(slots=True)
class Boundary:
    """What happened between two iterations."""

    started: list[Sequence] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    swapped_tokens: int = 0  # moved to or from host memory before the next iteration


class Replica:
    """One engine. `enqueue`, then `begin` at a boundary, then `complete` at `end_s`, and so on.

    end_s is the time of the next boundary at which something may change (inf when idle).
    """

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.waiting: deque[Sequence] = deque()
        self.running: dict[int, Sequence] = {}  # by admission number
        self.free_blocks = spec.blocks
        self.iteration = 0  # complete iterations
        self.end_s = math.inf
        self.busy_fs = 0
        self._time = spec.time
        self._cache = None if spec.prefix_block_tokens is None else PrefixCache(spec.prefix_block_tokens)
        self._clock_fs = 0  # start of the current stretch
        self._length = 0  # its iterations
        self._stretch = Stretch(1, 0)
        self._chunks: list[tuple[Sequence, int]] = []  # prefill tokens per iteration of the stretch
        self._budget_left = 0
        self._admitted = 0
        self._prefilling: dict[int, Sequence] = {}
        self._withdrawn: list[Sequence] = []  # leave at the next boundary
        self.decode_count = 0
        self.first_tokens: list[Sequence] = []  # sequences whose prefill the last `complete` ended
        self._decode_kv = 0  # cached tokens of decoding sequences
        self._decoding: list[int] = []  # admission numbers of decoding sequences, rising; beside them
        self._keys: list[AssignmentKey] = []
        self._generated = array("q")  # generated tokens less complete iterations
        self._phases = [0] * spec.block_tokens  # decoding sequences that need a block when iteration % block == phase
        self._finishes: list[tuple[int, int, Sequence]] = []  # heap of (iteration, admission number, sequence)

    @property
    def idle(self) -> bool:
        return self._length == 0

    def kv_tokens(self, now_s: float) -> int:
        """KV tokens in blocks held at now_s."""
        held = self.spec.blocks - self.free_blocks + self._new_blocks(self._iterations_at(now_s))
        return held * self.spec.block_tokens

    def enqueue(self, sequence: Sequence, now_s: float) -> None:
        """Take an assignment into the engine's queue; an output that can not fit is cut at the device's KV capacity.

        Raises `SimulationError` when not even its first token can fit.
        """
        capacity = self.spec.blocks * self.spec.block_tokens
        if sequence.prompt_tokens + 1 > capacity:
            raise SimulationError(
                f"request {sequence.key.request_id!r} was assigned to {sequence.key.device_id}, which can never run "
                f"it: prompt {sequence.prompt_tokens} + 1 tokens, KV capacity {capacity}"
            )
        if not sequence.kv_ready:
            sequence.prompt_tokens = max(1, sequence.prompt_tokens)  # an empty prompt still takes an iteration
        sequence.output_tokens = min(sequence.output_tokens, capacity - sequence.prompt_tokens)
        self.waiting.append(sequence)
        if len(self.waiting) == 1 and self._budget_left and len(self.running) < self.spec.slots:
            self._cut(now_s)

    def withdraw(self, sequence: Sequence, now_s: float) -> None:
        """Take a sequence out: from the queue at once, from the batch at the next iteration boundary (`end_s`)."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif self.running.get(sequence.order) is sequence:
            self._withdrawn.append(sequence)
            self._cut(now_s)

    def set_speed(self, speed: float, now_s: float) -> None:
        """From the next iteration on, iterations take 1 / speed of their usual time."""
        self._time = self.spec.time.scaled(speed)
        self._cut(now_s)

    def begin(self, now_s: float) -> Boundary:
        """Form the batch of the next iteration at a boundary, and plan how long it stays as it is."""
        if self.decode_count == 0 and not self._prefilling:
            if not self.waiting:
                return Boundary()
            if self.end_s == math.inf:
                self._clock_fs = to_fs(now_s)
        boundary = Boundary()
        if self._phases[self.iteration % self.spec.block_tokens] > self.free_blocks:
            self._make_room(boundary)
        left = self.spec.token_budget - self.decode_count
        if self._prefilling:
            left = self._chunk_prefills(left)
        if self.waiting and not boundary.preempted:
            left = self._admit(left, boundary)
        self._budget_left = left
        if self._cache is not None:
            self._trim_cache()
        time, count = self._time, self.decode_count
        prefill = pairs = 0
        for sequence, tokens in self._chunks:
            prefill += tokens
            pairs += tokens * (2 * sequence.computed + tokens)
        kv_tokens = self._decode_kv + count
        first = time.iteration_fs(count, kv_tokens, prefill, pairs)
        if boundary.swapped_tokens:
            first += (self.spec.swap_token_fs or 0) * boundary.swapped_tokens
        rise = time.kv_token * count + time.half_pair * 2 * prefill * prefill
        self._stretch = Stretch(first, rise)
        self._plan(1 if boundary.preempted or boundary.swapped_tokens else self._unchanged_iterations())
        return boundary

    def complete(self) -> list[Sequence]:
        """Bring the state to the end of the stretch; returns the sequences that finished there."""
        length = self._length
        span = self._stretch.duration_fs(length)
        self._clock_fs += span
        self.busy_fs += span
        self.free_blocks -= self._new_blocks(length)
        self.iteration += length
        self._decode_kv += self.decode_count * length
        self._length = 0
        if self._cache is not None:
            self._trim_cache()
        finished = []
        self.first_tokens = []
        for sequence, tokens in self._chunks:
            sequence.computed += tokens * length
            sequence.pending -= tokens * length
            if sequence.pending == 0:
                del self._prefilling[sequence.order]
                sequence.generated += 1
                self.first_tokens.append(sequence)
                if self._cache is not None:
                    self._pin(sequence, len(sequence.prefix_blocks))
                if sequence.generated == sequence.output_tokens:
                    self._release(sequence, sequence.blocks)
                    finished.append(sequence)
                else:
                    self._join(sequence)
        self._chunks = []
        while self._finishes and self._finishes[0][0] <= self.iteration:
            _, order, sequence = heapq.heappop(self._finishes)
            if sequence.order == order:
                self._leave(sequence)
                finished.append(sequence)
        if self._withdrawn:
            for sequence in self._withdrawn:
                if self.running.get(sequence.order) is sequence:
                    self._expel(sequence)
            self._withdrawn = []
        if not self.running and not self.waiting:
            self.end_s = math.inf
        return finished

    def progress(self, now_s: float) -> tuple[tuple[AssignmentKey, ...], np.ndarray]:
        """Keys and generated tokens (int64, same length) of the decoding sequences, as of now_s."""
        return tuple(self._keys), np.array(self._generated) + (self.iteration + self._iterations_at(now_s))

    # -- rules ---------------------------------------------------------------------------------------------------

    def _make_room(self, boundary: Boundary) -> None:
        while self._phases[self.iteration % self.spec.block_tokens] > self.free_blocks:
            victim = self.running[next(reversed(self.running))]
            decoding, swap = victim.joined >= 0, self.spec.swap_token_fs is not None
            self._expel(victim)
            victim.preemptions += 1
            victim.kv_ready = decoding and (swap or not self.spec.recompute)
            if decoding and swap:
                boundary.swapped_tokens += self._context(victim)
            self.waiting.appendleft(victim)
            boundary.preempted.append(victim)

    def _chunk_prefills(self, left: int) -> int:
        for sequence in self._prefilling.values():
            if left == 0:
                break
            tokens = min(sequence.pending, left)
            self._chunks.append((sequence, tokens))
            left -= tokens
        return left

    def _admit(self, left: int, boundary: Boundary) -> int:
        spec = self.spec
        while self.waiting and left > 0 and len(self.running) < spec.slots:
            sequence = self.waiting[0]
            context, ready = self._context(sequence), sequence.kv_ready
            blocks = -(-context // spec.block_tokens)
            growth = self._phases[self.iteration % spec.block_tokens] + (ready and context % spec.block_tokens == 0)
            reserve = spec.watermark_blocks if self.running else 0
            if blocks + growth + reserve > self.free_blocks:
                break
            self.waiting.popleft()
            sequence.order, sequence.blocks = self._admitted, blocks
            self._admitted += 1
            self.running[sequence.order] = sequence
            self.free_blocks -= blocks
            boundary.started.append(sequence)
            if ready:
                sequence.computed = context
                self._join(sequence)
                left -= 1
                if sequence.preemptions and spec.swap_token_fs is not None:
                    boundary.swapped_tokens += context
            else:
                sequence.computed = self._find_prefix(sequence, context)
                sequence.pending, sequence.joined = context - sequence.computed, -1
                self._prefilling[sequence.order] = sequence
                tokens = min(sequence.pending, left)
                self._chunks.append((sequence, tokens))
                left -= tokens
        return left

    def _context(self, sequence: Sequence) -> int:
        """Tokens of its KV cache when it decodes next, or that it has to compute before."""
        tokens = sequence.prompt_tokens + sequence.generated
        if sequence.kv_ready and self.spec.recompute:
            tokens -= 1  # the last token of a real engine is not in the cache yet
        return tokens

    # -- decoding membership -------------------------------------------------------------------------------------

    def _join(self, sequence: Sequence) -> None:
        block = self.spec.block_tokens
        sequence.joined, sequence.context = self.iteration, sequence.computed
        self.decode_count += 1
        self._decode_kv += sequence.context
        self._phases[(sequence.joined - sequence.context) % block] += 1
        at = bisect_left(self._decoding, sequence.order)
        self._decoding.insert(at, sequence.order)
        self._keys.insert(at, sequence.key)
        self._generated.insert(at, sequence.generated - sequence.joined)
        finish = sequence.joined + sequence.output_tokens - sequence.generated
        heapq.heappush(self._finishes, (finish, sequence.order, sequence))

    def _leave(self, sequence: Sequence) -> None:
        block = self.spec.block_tokens
        decoded = self.iteration - sequence.joined
        context = sequence.context + decoded
        sequence.generated += decoded
        self.decode_count -= 1
        self._decode_kv -= context
        self._phases[(sequence.joined - sequence.context) % block] -= 1
        at = bisect_left(self._decoding, sequence.order)
        del self._decoding[at], self._keys[at], self._generated[at]
        sequence.joined = -1
        self._release(sequence, -(-context // block))

    def _expel(self, sequence: Sequence) -> None:
        """Out of the batch before its end."""
        if sequence.joined >= 0:
            self._leave(sequence)
        else:
            del self._prefilling[sequence.order]
            self._release(sequence, sequence.blocks)
        sequence.order = -1

    def _release(self, sequence: Sequence, blocks: int) -> None:
        self.free_blocks += blocks
        del self.running[sequence.order]
        if self._cache is not None:
            self._cache.unpin(sequence.prefix_blocks[: sequence.pinned])
            sequence.pinned = 0

    # -- prefix cache --------------------------------------------------------------------------------------------

    def _find_prefix(self, sequence: Sequence, context: int) -> int:
        """Leading tokens that are here already; the last token is always computed."""
        if self._cache is None or self.spec.prefix_block_tokens is None:
            return 0
        blocks = self._cache.match_blocks(sequence.prefix_blocks)
        self._pin(sequence, blocks)
        sequence.cached_tokens = min(blocks * self.spec.prefix_block_tokens, context - 1)
        return sequence.cached_tokens

    def _pin(self, sequence: Sequence, blocks: int) -> None:
        if self._cache is not None:
            self._cache.pin(sequence.prefix_blocks[sequence.pinned : blocks])
            sequence.pinned = blocks

    def _trim_cache(self) -> None:
        if self._cache is not None:
            self._cache.trim(self.free_blocks * self.spec.block_tokens)

    # -- skipping ------------------------------------------------------------------------------------------------

    def _unchanged_iterations(self) -> int:
        """For how many iterations the batch just formed stays as it is."""
        limit = math.inf
        if self._chunks:
            sequence, tokens = self._chunks[0]
            whole = len(self._chunks) == 1 and self._budget_left == 0
            limit = sequence.pending // tokens if whole else 1
        finishes = self._finishes
        while finishes and finishes[0][2].order != finishes[0][1]:
            heapq.heappop(finishes)
        if finishes:
            limit = min(limit, finishes[0][0] - self.iteration)
        return self._within_free_blocks(int(limit))

    def _within_free_blocks(self, iterations: int) -> int:
        most = (iterations // self.spec.block_tokens + 1) * self.decode_count
        if most <= self.free_blocks or self._new_blocks(iterations) <= self.free_blocks:
            return iterations
        low, high = 1, iterations  # fits, does not fit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._new_blocks(middle) <= self.free_blocks else (low, middle)
        return low

    def _new_blocks(self, iterations: int) -> int:
        """Blocks that decoding takes over the next iterations."""
        if self.decode_count == 0:
            return 0
        block = self.spec.block_tokens
        if iterations == 1:
            return self._phases[self.iteration % block]
        cycles, rest = divmod(iterations, block)
        start = self.iteration % block
        total = cycles * self.decode_count + sum(self._phases[start : start + rest])
        if start + rest > block:
            total += sum(self._phases[: start + rest - block])
        return total

    def _iterations_at(self, now_s: float) -> int:
        """Complete iterations of the current stretch at now_s."""
        if self._length == 0:
            return 0
        span = to_fs(now_s) - self._clock_fs
        count = min(self._length, self._stretch.iterations_within(max(0, span)))
        while count < self._length and to_s(self._clock_fs + self._stretch.duration_fs(count + 1)) <= now_s:
            count += 1
        return count

    def _cut(self, now_s: float) -> None:
        """Let the stretch end at the next iteration boundary."""
        if self._length > 1:
            done = self._iterations_at(now_s)
            if to_s(self._clock_fs + self._stretch.duration_fs(done)) < now_s or done == 0:
                done += 1
            self._plan(done)

    def _plan(self, iterations: int) -> None:
        self._length = iterations
        self.end_s = to_s(self._clock_fs + self._stretch.duration_fs(iterations))
