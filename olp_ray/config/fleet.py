"""Fleets: which devices there are. The notation `4xa100-8b` is read here."""

from __future__ import annotations

import dataclasses
import re
from typing import Self

from pydantic import Field, ValidationError, model_validator

from olp_ray.config.base import Count, Mode, Model, NotNegative, nearest
from olp_ray.core.types import Device, IterationModel
from olp_ray.errors import ConfigError
from olp_ray.hardware import DEVICE_KINDS, DeviceKind

PERIOD_STEP_S = 1.0  # the paper's period model: one decode iteration is one second


class DeviceConfig(Model):
    """`count` equal devices. With `kind` unset, slots and kv_tokens are needed (period mode)."""

    count: Count = 1
    kind: str | None = None
    slots: Count | None = None
    kv_tokens: Count | None = None
    block_tokens: Count | None = None
    prefill_chunk_tokens: Count | None = None
    host_overhead_ms: NotNegative | None = None
    models: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.kind is not None and self.kind not in DEVICE_KINDS:
            raise ValueError(f"kind {self.kind!r} is unknown{nearest(self.kind, DEVICE_KINDS)}")
        if self.kind is None and (self.slots is None or self.kv_tokens is None):
            raise ValueError("without a kind, slots and kv_tokens are both needed")
        return self

    def hardware(self) -> DeviceKind | None:
        """The kind with this entry's overrides, or None for a device that is only slots and KV tokens."""
        if self.kind is None:
            return None
        kind = DEVICE_KINDS[self.kind]
        changes = {
            name: value
            for name in ("slots", "kv_tokens", "block_tokens", "prefill_chunk_tokens", "host_overhead_ms")
            if (value := getattr(self, name)) is not None
        }
        return kind if not changes else dataclasses.replace(kind, **changes)


class FleetConfig(Model):
    """The devices in order; ids are d0, d1, ... over all entries."""

    devices: tuple[DeviceConfig, ...] = Field(min_length=1)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `4xa100-8b` or `2xa100-8b+2xh100-8b`, or `4xB24M40000` for plain slots and KV tokens.

        Raises `ConfigError` naming the part that is wrong and the kinds there are.
        """
        return cls(devices=tuple(_parse_device(part.strip()) for part in text.split("+")))

    def expand(self) -> list[DeviceConfig]:
        """One entry per device."""
        return [entry for entry in self.devices for _ in range(entry.count)]

    def core_devices(self, mode: Mode) -> tuple[Device, ...]:
        """The fleet as the router sees it. Raises `ConfigError` when timed mode meets a device without a kind."""
        return tuple(_core_device(f"d{i}", entry, mode) for i, entry in enumerate(self.expand()))


def _parse_device(part: str) -> DeviceConfig:
    match = re.fullmatch(r"(?:(\d+)x)?(.+)", part, flags=re.IGNORECASE)
    count, name = (int(match[1] or 1), match[2]) if match else (0, part)
    plain = re.fullmatch(r"B(\d+)M(\d+)", name, flags=re.IGNORECASE)
    try:
        if plain:
            return DeviceConfig(count=count, slots=int(plain[1]), kv_tokens=int(plain[2]))
        return DeviceConfig(count=count, kind=name.lower())
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"fleet {part!r}: {reason}; expected COUNTxKIND like 4xa100-8b, or COUNTxB<slots>M<kv tokens>"
        ) from error


def _core_device(device_id: str, entry: DeviceConfig, mode: Mode) -> Device:
    kind = entry.hardware()
    if mode == "period":
        slots, kv_tokens = (kind.slots, kind.kv_tokens) if kind else (entry.slots, entry.kv_tokens)
        assert slots is not None
        assert kv_tokens is not None
        return Device(device_id, slots, kv_tokens, PERIOD_STEP_S, models=frozenset(entry.models))
    if kind is None:
        raise ConfigError(f"device {device_id}: timed mode needs a kind (valid: {', '.join(DEVICE_KINDS)})")
    fit = kind.roofline
    full_step_ms = fit.c0 + max(fit.w, fit.c_tok * kind.slots) + fit.c_kv * kind.kv_tokens / 2 + kind.host_overhead_ms
    chunk_ms = fit.c0 + fit.c_tok * kind.prefill_chunk_tokens + kind.host_overhead_ms
    return Device(
        device_id,
        kind.slots,
        kind.kv_tokens,
        full_step_ms / 1e3,
        block_tokens=kind.block_tokens,
        iteration=IterationModel((fit.c_tok + fit.c_batch) / 1e3, fit.c_kv / 1e3, fit.c_tok / 1e3),
        prefill_tokens_per_s=kind.prefill_chunk_tokens / chunk_ms * 1e3,
        models=frozenset(entry.models),
    )
