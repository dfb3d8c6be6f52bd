"""What an engine is told to be: its limits, its batching rule's constants, and how long its iterations take.

Nothing moves here; `replica` does the work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from olp_ray.config import DeviceConfig, Mode
from olp_ray.config.fleet import PERIOD_STEP_S
from olp_ray.core.types import AssignmentKey
from olp_ray.errors import ConfigError
from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim.latency import IterationTime


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One continuous-batching engine.

    slots is the most sequences in the batch (B of the paper, max_num_seqs of engines). token_budget bounds the tokens
    of one iteration, one for each decoding sequence and the rest for prefill chunks. Admission leaves
    watermark_blocks free. prefill says whether prompts are computed here; recompute, whether an evicted sequence
    has to compute its tokens again (the period model has no such cost).
    """

    slots: int
    kv_tokens: int
    block_tokens: int
    token_budget: int
    watermark_blocks: int
    prefill: bool
    recompute: bool
    time: IterationTime

    def __post_init__(self) -> None:
        if self.token_budget < self.slots:
            raise ConfigError(
                f"prefill_chunk_tokens is {self.token_budget}; expected at least slots ({self.slots}): every decoding "
                "sequence takes one token of an iteration's budget"
            )

    @property
    def blocks(self) -> int:
        """Whole KV blocks."""
        return self.kv_tokens // self.block_tokens


def engine_spec(device: DeviceConfig, mode: Mode, watermark: float = 0.0, prefill: bool = True) -> EngineSpec:
    """The engine of one configured device. watermark is a share of the KV blocks.

    Raises `ConfigError` when timed mode meets a device without a kind.
    """
    kind = device.hardware()
    if mode == "period":
        slots, kv_tokens = (kind.slots, kind.kv_tokens) if kind else (device.slots, device.kv_tokens)
        assert slots is not None
        assert kv_tokens is not None
        return EngineSpec(slots, kv_tokens, 1, slots, 0, False, False, IterationTime.constant(PERIOD_STEP_S))
    if kind is None:
        raise ConfigError(f"timed mode needs devices with a kind (valid: {', '.join(DEVICE_KINDS)})")
    return EngineSpec(
        kind.slots,
        kind.kv_tokens,
        kind.block_tokens,
        kind.prefill_chunk_tokens,
        int(watermark * (kind.kv_tokens // kind.block_tokens)),
        prefill,
        True,
        IterationTime.of_kind(kind),
    )


@dataclass(slots=True, eq=False)
class Sequence:
    """One assignment inside an engine.

    generated counts output tokens so far. When decoding, context is the tokens in the KV cache as of iteration
    `joined`; both move with the engine's iteration counter, so they are brought up to date only when it leaves.
    """

    key: AssignmentKey
    prompt_tokens: int
    output_tokens: int
    generated: int = 0
    order: int = -1  # admission number; the latest admitted is evicted first
    blocks: int = 0  # held since admission; growth while decoding comes on top
    pending: int = 0  # prefill tokens still to compute
    computed: int = 0  # prefill tokens in the KV cache
    joined: int = -1  # iteration number of its first decode; -1 while in prefill or waiting
    context: int = 0
    preemptions: int = 0
    prefix_blocks: tuple[int, ...] = field(default=())
    cached_tokens: int = 0
