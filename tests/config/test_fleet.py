"""Fleet notation and YAML fleets; heterogeneous ones too."""

from __future__ import annotations

import pytest

from olp_ray.config import DeviceConfig, FleetConfig, validate
from olp_ray.errors import ConfigError
from olp_ray.hardware import DEVICE_KINDS


def test_count_and_kind() -> None:
    devices = FleetConfig.parse("4xa100-8b").core_devices("timed")
    assert [d.id for d in devices] == ["d0", "d1", "d2", "d3"]
    assert {(d.slots, d.kv_tokens, d.block_tokens) for d in devices} == {(128, 450_379, 16)}


def test_count_defaults_to_one_and_case_does_not_matter() -> None:
    assert FleetConfig.parse("A100-7B").core_devices("timed")[0].kv_tokens == 118_137


def test_heterogeneous_fleet_keeps_every_entry() -> None:
    devices = FleetConfig.parse("2xa100-8b + 1xh100-70b").core_devices("timed")
    assert [d.kv_tokens for d in devices] == [450_379, 450_379, 499_581]
    assert devices[2].step_s < FleetConfig.parse("a100-70b").core_devices("timed")[0].step_s


def test_two_entries_of_the_same_kind_keep_their_own_numbers() -> None:
    entries = [{"kind": "a100-8b", "slots": 64}, {"kind": "a100-8b", "slots": 256, "count": 2}]
    fleet = validate({"devices": entries}, FleetConfig, "f.yaml")
    assert [d.slots for d in fleet.core_devices("timed")] == [64, 256, 256]


def test_plain_devices_are_for_period_mode() -> None:
    fleet = FleetConfig.parse("2xB24M40000")
    assert [(d.slots, d.kv_tokens, d.step_s) for d in fleet.core_devices("period")] == [(24, 40_000, 1.0)] * 2
    with pytest.raises(ConfigError, match="device d0: timed mode needs a kind"):
        fleet.core_devices("timed")


def test_kinds_work_in_period_mode_too() -> None:
    device = FleetConfig.parse("a100-8b").core_devices("period")[0]
    assert (device.slots, device.kv_tokens, device.step_s) == (128, 450_379, 1.0)


@pytest.mark.parametrize("kind", sorted(DEVICE_KINDS))
def test_every_kind_has_sane_numbers(kind: str) -> None:
    device = FleetConfig.parse(kind).core_devices("timed")[0]
    assert 0.003 < device.step_s < 0.3
    assert 500 < device.prefill_tokens_per_s < 100_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4xa100-8c", r"fleet '4xa100-8c': kind 'a100-8c' is unknown; did you mean 'a100-8b'\?"),
        ("4xa100-8b+", "fleet ''"),
        ("0xa100-8b", "fleet '0xa100-8b'"),
        ("", "expected COUNTxKIND like 4xa100-8b"),
        ("2xB0M10", "fleet '2xB0M10'"),
    ],
)
def test_wrong_notation_is_named(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        FleetConfig.parse(text)


def test_no_devices() -> None:
    with pytest.raises(ConfigError, match="devices"):
        validate({"devices": []}, FleetConfig, "f.yaml")


def test_a_device_needs_a_kind_or_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"devices\.0: without a kind, slots and kv_tokens are both needed"):
        validate({"devices": [{"slots": 3}]}, FleetConfig, "f.yaml")


def test_overrides_reach_the_hardware() -> None:
    hardware = DeviceConfig(kind="a100-8b", host_overhead_ms=5.0, prefill_chunk_tokens=2048).hardware()
    assert hardware is not None
    assert (hardware.host_overhead_ms, hardware.prefill_chunk_tokens) == (5.0, 2048)
    assert hardware.roofline == DEVICE_KINDS["a100-8b"].roofline
