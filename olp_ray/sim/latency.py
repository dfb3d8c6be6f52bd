"""How long one iteration of an engine takes, in whole femtoseconds. No queueing and no batching live here.

    symbol   meaning                                            unit        name
    B        sequences that decode in the iteration             1           decode_count
    KV       their cached tokens, the new ones included         tokens      kv_tokens
    P        prefill tokens of the iteration                    tokens      prefill_tokens
    pairs    sum over prefill chunks of p * (prefix + p / 2)    tokens^2    double_pairs / 2

    t = c0 + max(w, c_tok * (B + P)) + c_kv * KV + c_pairs * pairs + c_batch * B + host overhead   (see hardware.py)
        + c_pre * P   (none of the built-in kinds has it)

Constants are rounded once to whole femtoseconds, so sums over iterations are exact however they are grouped: a closed
form over n iterations and n single steps give the same clock, to the last digit.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

from olp_ray.hardware import DeviceKind, RooflineConstants

FS_PER_S = 10**15
_FS_PER_MS = 10**12


def to_s(time_fs: int) -> float:
    """The nearest float in seconds."""
    return time_fs / FS_PER_S


def to_fs(time_s: float) -> int:
    """The nearest whole femtosecond."""
    numerator, denominator = time_s.as_integer_ratio()
    return (2 * numerator * FS_PER_S + denominator) // (2 * denominator)


@dataclass(frozen=True, slots=True)
class IterationTime:
    """The roofline's constants in femtoseconds; half_pair is per p * (2 * prefix + p)."""

    fixed: int
    floor: int
    token: int
    kv_token: int
    half_pair: int
    sequence: int
    prefill_token: int = 0

    @classmethod
    def constant(cls, step_s: float) -> IterationTime:
        """Every iteration takes step_s: the period model."""
        return cls(to_fs(step_s), 0, 0, 0, 0, 0)

    @classmethod
    def roofline(cls, constants: RooflineConstants, host_overhead_ms: float) -> IterationTime:
        """From constants in ms."""

        def fs(ms: float) -> int:
            return round(ms * _FS_PER_MS)

        return cls(
            fs(constants.c0 + host_overhead_ms),
            fs(constants.w),
            fs(constants.c_tok),
            fs(constants.c_kv),
            fs(constants.c_pairs / 2),
            fs(constants.c_batch),
        )

    @classmethod
    def of_kind(cls, kind: DeviceKind) -> IterationTime:
        return cls.roofline(kind.roofline, kind.host_overhead_ms)

    def scaled(self, speed: float) -> IterationTime:
        """Of a device that is `speed` times as fast."""
        return IterationTime(*(round(constant / speed) for constant in dataclasses.astuple(self)))

    def iteration_fs(self, decode_count: int, kv_tokens: int, prefill_tokens: int, double_pairs: int) -> int:
        """Duration of one iteration."""
        return (
            self.fixed
            + max(self.floor, self.token * (decode_count + prefill_tokens))
            + self.kv_token * kv_tokens
            + self.half_pair * double_pairs
            + self.sequence * decode_count
            + self.prefill_token * prefill_tokens
        )


class Stretch(NamedTuple):
    """Iterations in a row whose durations rise by a constant: first_fs, first_fs + rise_fs, ..."""

    first_fs: int
    rise_fs: int

    def duration_fs(self, iterations: int) -> int:
        """Of the first `iterations` of them."""
        return iterations * self.first_fs + self.rise_fs * (iterations * (iterations - 1) // 2)

    def iterations_within(self, span_fs: int) -> int:
        """How many iterations are complete after span_fs >= 0."""
        linear = self.first_fs - self.rise_fs / 2
        guess = 2 * span_fs / (linear + math.sqrt(linear * linear + 2.0 * self.rise_fs * span_fs))
        count = max(0, int(guess))
        while self.duration_fs(count) > span_fs:
            count -= 1
        while self.duration_fs(count + 1) <= span_fs:
            count += 1
        return count
