"""What an engine is told to be: its limits, its batching rule's constants, and how long its iterations take.

Nothing moves here; `replica` does the work.
"""

from __future__ import annotations

from dataclasses import dataclass

from olp_ray.config import DeviceConfig, Mode
from olp_ray.config.fleet import PERIOD_STEP_S
from olp_ray.config.sim import SimConfig
from olp_ray.core.types import AssignmentKey
from olp_ray.errors import ConfigError
from olp_ray.hardware import DEVICE_KINDS
from olp_ray.sim.latency import FS_PER_S, IterationTime


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One continuous-batching engine.

    slots is the most sequences in the batch (B of the paper, max_num_seqs of engines). token_budget bounds the tokens
    of one iteration, one for each decoding sequence and the rest for prefill chunks. Admission leaves watermark_blocks
    free. prefill says whether prompts are computed here. recompute says whether KV cache that is lost costs anything:
    in the period model it does not. swap_token_fs is the time to move a token's KV cache to host memory or back; None
    evicts by recompute. prefix_block_tokens is the size of hashed prompt blocks; None does without a prefix cache.
    """

    slots: int
    kv_tokens: int
    block_tokens: int
    token_budget: int
    watermark_blocks: int
    prefill: bool
    recompute: bool
    time: IterationTime
    swap_token_fs: int | None = None
    prefix_block_tokens: int | None = None

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


def engine_spec(device: DeviceConfig, mode: Mode, sim: SimConfig | None = None) -> EngineSpec:
    """The engine of one configured device.

    Raises `ConfigError` when timed mode meets a device without a kind, and for settings that exclude each other.
    """
    kind = device.hardware()
    if mode == "period":
        slots, kv_tokens = (kind.slots, kind.kv_tokens) if kind else (device.slots, device.kv_tokens)
        assert slots is not None
        assert kv_tokens is not None
        return EngineSpec(slots, kv_tokens, 1, slots, 0, False, False, IterationTime.constant(PERIOD_STEP_S))
    if kind is None:
        raise ConfigError(f"timed mode needs devices with a kind (valid: {', '.join(DEVICE_KINDS)})")
    sim = sim or SimConfig()
    return EngineSpec(
        kind.slots,
        kind.kv_tokens,
        kind.block_tokens,
        kind.prefill_chunk_tokens,
        int(sim.watermark * (kind.kv_tokens // kind.block_tokens)),
        prefill=sim.stage == "mixed",
        recompute=True,
        time=IterationTime.of_kind(kind),
        swap_token_fs=round(FS_PER_S / sim.swap_tokens_per_s) if sim.eviction == "swap" else None,
        prefix_block_tokens=sim.prefix_block_tokens if sim.prefix_caching else None,
    )


@dataclass(slots=True, eq=False)
class Sequence:
    """One assignment inside an engine.

    generated counts output tokens so far. kv_ready says whether the KV cache of what it has so far needs no computing
    here. When decoding, context is the tokens in the KV cache as of iteration `joined`; context and generated move with
    the engine's iteration counter, so they are brought up to date only when it leaves.
    """

    key: AssignmentKey
    prompt_tokens: int
    output_tokens: int
    generated: int = 0
    kv_ready: bool = False
    prefix_blocks: tuple[int, ...] = ()
    order: int = -1  # admission number; the latest admitted is evicted first
    blocks: int = 0  # held since admission; growth while decoding comes on top
    pending: int = 0  # prefill tokens still to compute
    computed: int = 0  # prefill tokens in the KV cache
    joined: int = -1  # iteration number of its first decode; -1 while in prefill or waiting
    context: int = 0
    preemptions: int = 0
    cached_tokens: int = 0  # prompt tokens that the last admission found in the prefix cache
    pinned: int = 0  # leading prefix blocks that it holds in the prefix cache
