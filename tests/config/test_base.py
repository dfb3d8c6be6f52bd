"""YAML in, models out, and one clear line for every fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.config import DeviceConfig, FleetConfig, Model, RouterConfig, load_yaml, validate
from olp_ray.errors import ConfigError


class Numbers(Model):
    a: float = 0.0
    fleet: FleetConfig | None = None


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 1e-3), ("1e3", 1e3), ("1E+3", 1e3), ("-2e-2", -0.02), ("1.5e-3", 1.5e-3), (".5", 0.5), ("3", 3.0)],
)
def test_numbers_with_exponents_are_numbers(tmp_path: Path, text: str, value: float) -> None:
    assert load_yaml(write(tmp_path, f"a: {text}"), Numbers).a == value


def test_text_that_only_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a: Input should be a valid number"):
        load_yaml(write(tmp_path, "a: 1e-3x"), Numbers)


def test_bad_yaml_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "a: [1,\nb: 2")
    with pytest.raises(ConfigError, match=r"f\.yaml: not valid YAML: .*line 2") as caught:
        load_yaml(path, Numbers)
    assert "\n" not in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: No such file"):
        load_yaml(tmp_path / "none.yaml", Numbers)


def test_directory_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load_yaml(tmp_path, Numbers)


@pytest.mark.parametrize(("text", "kind"), [("- 1", "list"), ("3", "int"), ("", "NoneType")])
def test_top_must_be_a_mapping(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"expected a mapping of keys at the top, got {kind}"):
        load_yaml(write(tmp_path, text), Numbers)


def test_unknown_key_names_the_nearest_valid_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: polic: unknown key; did you mean 'policy'\? \(valid: .*preset"):
        load_yaml(write(tmp_path, "polic: x"), RouterConfig)


def test_unknown_nested_key_lists_the_keys_of_its_own_level() -> None:
    with pytest.raises(ConfigError, match=r"objective\.tfft: unknown key; did you mean 'ttft'\?"):
        validate({"objective": {"tfft": 1}}, RouterConfig, "f.yaml")


def test_unknown_key_inside_a_list_entry() -> None:
    data = {"fleet": {"devices": [{"kind": "a100-8b"}, {"kind": "a100-8b", "slot": 3}]}}
    with pytest.raises(ConfigError, match=r"fleet\.devices\.1\.slot: unknown key; did you mean 'slots'\?"):
        validate(data, Numbers, "f.yaml")


def test_every_fault_is_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        validate({"polic": 1, "queue_size": 0}, RouterConfig, "f.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("f.yaml: ") for line in lines)
    assert any("queue_size" in line and "got 0" in line for line in lines)


def test_models_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        DeviceConfig(kind="a100-8b").count = 2  # type: ignore[misc]


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"a: \xb4\xff")
    with pytest.raises(ConfigError, match=r"f\.yaml: expected UTF-8 text: .* at byte 3"):
        load_yaml(tmp_path / "f.yaml", Numbers)


@pytest.mark.parametrize(
    ("text", "key", "line"), [("a: 1\nb: 2\na: 3", "a", 3), ("b:\n  - {c: 1}\n  - {c: 1, d: 2, c: 3}", "c", 3)]
)
def test_a_key_that_is_there_twice_is_an_error_with_its_line(tmp_path: Path, text: str, key: str, line: int) -> None:
    with pytest.raises(
        ConfigError, match=rf"f\.yaml: not valid YAML: key '{key}' is there twice .*line {line}, column"
    ):
        load_yaml(write(tmp_path, text), Numbers)


def test_a_merged_key_may_be_given_again(tmp_path: Path) -> None:
    text = "devices:\n  - &one {kind: a100-8b, count: 1, slots: 4}\n  - {<<: *one, slots: 8}"
    assert [device.slots for device in load_yaml(write(tmp_path, text), FleetConfig).devices] == [4, 8]
