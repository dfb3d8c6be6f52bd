"""The scenario matrix: which requests meet which fleet. No policy is named here.

Period cells draw prompts and outputs as pairs from azure2023_conv (outputs capped), or from the built-in `chat1m`
lengths without that file. The saturation of the slot-bound and the KV-bound fleet on the trace's lengths is about .455
and .463 requests per period. Cells of fixed prompt-to-output ratio have other lengths, so their rate is a share of the
fleet's capacity: the lesser of slots / E[o] and KV tokens / E[s o + o^2 / 2].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from olp_ray.config import FleetConfig
from olp_ray.workload.arrivals import piecewise_arrivals
from olp_ray.workload.generators import GENERATORS, table
from olp_ray.workload.traces import read_trace

CONVERSATIONS = "azure2023_conv.csv"
OUTPUT_CAP = 2000
BUILT_IN = "chat1m"

SLOT_BOUND = "4xB24M40000"
KV_BOUND = "4xB64M30000"
MIXED_SIZES = "2xB48M80000+2xB12M20000"  # two with twice and two with half of the slot-bound base


@dataclass(frozen=True, slots=True)
class PeriodCell:
    """rates are arrivals per period of equal stretches of the run; with a generator as lengths, shares of capacity."""

    name: str
    fleet: str
    rates: tuple[float, ...]
    predictor: str = "uniform:0.2"
    lengths: str = CONVERSATIONS

    @property
    def overloaded(self) -> bool:
        return max(self.rates) >= (0.5 if self.lengths == CONVERSATIONS else 1.0)


@dataclass(frozen=True, slots=True)
class TimedCell:
    """A trace replayed open loop at `load` times the fleet's saturation throughput, on modelled GPUs."""

    name: str
    fleet: str
    trace: str
    load: float
    requests: int = 6000
    predictor: str = "uniform:0.2"

    @property
    def overloaded(self) -> bool:
        return self.load >= 1.0


Cell = PeriodCell | TimedCell


def _period_cells() -> list[PeriodCell]:
    bases = {"slot": PeriodCell("", SLOT_BOUND, (0.5,)), "kv": PeriodCell("", KV_BOUND, (0.5,))}
    cells = [
        replace(base, name=f"{name}-{rate:g}", rates=(rate,))
        for name, base in bases.items()
        for rate in (0.5, 0.6, 0.45, 0.4, 0.3)
    ]
    cells += [replace(base, name=f"{name}-mean", predictor="mean") for name, base in bases.items()]
    cells += [PeriodCell(f"hetero-{rate:g}", MIXED_SIZES, (rate,)) for rate in (0.6, 0.5, 0.45)]
    cells += [
        replace(base, name=f"{name}-{label}", predictor=predictor)
        for name, base in bases.items()
        for label, predictor in (("perfect", "perfect"), ("lognormal", "lognormal:0.5"), ("class", "class_mean"))
    ]
    cells += [replace(base, name=f"{name}-shift", rates=(0.4, 0.6)) for name, base in bases.items()]
    cells += [
        PeriodCell(f"{name}-{load:g}", SLOT_BOUND, (load,), lengths=lengths)
        for name, lengths in (("decode-heavy", "pd_1_4"), ("prefill-heavy", "pd_4_1"))
        for load in (1.1, 0.9)
    ]
    return cells


def _timed_cells() -> list[TimedCell]:
    traces = (
        ("conv", CONVERSATIONS, ("4xa100-8b", "4xa100-7b")),
        ("code", "azure2023_code.csv", ("4xa100-8b",)),
        ("arena", "vtc_arena.csv", ("4xa100-8b", "4xa100-7b")),
        ("mooncake", "mooncake_conversation_4k.csv", ("4xa100-8b",)),
    )
    return [
        TimedCell(f"{name}-{fleet[-2:]}-{load:g}", fleet, trace, load)
        for name, trace, fleets in traces
        for fleet in fleets
        for load in (0.9, 1.1, 0.7)
    ]


CELLS: Mapping[str, Cell] = {cell.name: cell for cell in (*_period_cells(), *_timed_cells())}


def period_workload(cell: PeriodCell, periods: int, seed: int, traces: Path | None) -> pd.DataFrame:
    """One seed's requests of a period cell, in the columns of a trace."""
    length_rng, arrival_rng = (np.random.default_rng([seed, stream]) for stream in (11, 12))
    capacity = 1.0
    if cell.lengths != CONVERSATIONS:
        prompt, output = GENERATORS[cell.lengths].lengths(20_000, np.random.default_rng(0))
        capacity = _capacity(FleetConfig.parse(cell.fleet), prompt, output)
    stretch = periods / len(cell.rates)
    times = piecewise_arrivals([(stretch, rate * capacity) for rate in cell.rates], arrival_rng)
    prompt, output = _lengths(cell.lengths, len(times), length_rng, traces)
    return table(times, prompt, output)


def _lengths(name: str, count: int, rng: np.random.Generator, traces: Path | None) -> tuple[np.ndarray, np.ndarray]:
    if name != CONVERSATIONS or traces is None:
        prompt, output = GENERATORS[BUILT_IN if name == CONVERSATIONS else name].lengths(count, rng)
    else:
        frame = read_trace(traces / name)
        drawn = rng.integers(0, len(frame), count)
        prompt = frame["num_prefill_tokens"].to_numpy()[drawn]
        output = frame["num_decode_tokens"].to_numpy()[drawn]
    return prompt, np.minimum(output, OUTPUT_CAP)


def _capacity(fleet: FleetConfig, prompt: np.ndarray, output: np.ndarray) -> float:
    """Requests per period that slots and KV tokens allow, by mean use."""
    devices = fleet.core_devices("period")
    slots, kv_tokens = sum(device.slots for device in devices), sum(device.kv_tokens for device in devices)
    return float(min(slots / output.mean(), kv_tokens / (prompt * output + output**2 / 2).mean()))
