"""The arrows of docs/architecture.md: which room may import which, asserted on the source and on a fresh process."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import olp_ray

PACKAGE = Path(olp_ray.__file__).parent

BASE = {"errors", "hardware"}
BELOW = {*BASE, "config", "core"}  # what every room outside the core may use

# room -> rooms that it may import besides itself
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "hardware": set(),
    "sources": set(),
    "core": {"errors"},
    "config": {*BASE, "core"},
    "sim": BELOW,
    "workload": BELOW,
    "report": BELOW,
    "runtime": BELOW,
    "serve": {*BELOW, "runtime", "sim", "workload"},
    "sweep": {*BELOW, "sim", "workload", "report"},
    "cli": {*BELOW, "sim", "workload", "report", "runtime", "serve", "sweep"},
    "__init__": {*BELOW, "sources", "sim", "workload", "report", "sweep"},
    "__main__": {"cli"},
}

CORE_LIBRARIES = {"numpy"}
CORE_MAY_USE_SCIPY = {"core/hindsight.py", "core/exact_prices.py"}
CORE_MAY_USE_NUMBA = {"core/kernels/compiler.py"}
CORE_MUST_NOT_USE = {"asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "random", "socket",
                     "subprocess", "threading", "time"}  # fmt: skip


class Import(NamedTuple):
    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(path: Path) -> Iterator[Import]:
    file = path.relative_to(PACKAGE).as_posix()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} uses a relative import"
            names = [f"olp_ray.{alias.name}" for alias in node.names] if node.module == "olp_ray" else [node.module]
            for name in names:
                yield Import(file, node.lineno, str(name))


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


SOURCES = sorted(PACKAGE.rglob("*.py"))
IMPORTS = [entry for path in SOURCES for entry in imports_of(path)]


def test_every_file_is_in_a_known_room() -> None:
    assert {room_of(path.relative_to(PACKAGE).as_posix()) for path in SOURCES} <= set(ARROWS)


def test_arrows_have_no_cycle() -> None:
    def reach(room: str, seen: tuple[str, ...] = ()) -> None:
        assert room not in seen, " -> ".join((*seen, room))
        for below in ARROWS[room]:
            reach(below, (*seen, room))

    for room in ARROWS:
        reach(room)


def test_rooms_import_only_what_is_below_them() -> None:
    wrong = []
    for entry in IMPORTS:
        parts = entry.module.split(".")
        if parts[0] != "olp_ray" or len(parts) == 1:
            continue
        room = room_of(entry.file)
        if parts[1] != room and parts[1] in ARROWS and parts[1] not in ARROWS[room]:
            wrong.append(str(entry))
    assert not wrong


def test_core_uses_numpy_and_the_standard_library_only() -> None:
    wrong = []
    for entry in IMPORTS:
        top = entry.module.split(".")[0]
        if room_of(entry.file) != "core" or top == "olp_ray":
            continue
        allowed = CORE_LIBRARIES | ({"scipy"} if entry.file in CORE_MAY_USE_SCIPY else set())
        allowed |= {"numba"} if entry.file in CORE_MAY_USE_NUMBA else set()
        banned = CORE_MUST_NOT_USE - allowed
        if top in banned or not (top in sys.stdlib_module_names or top in allowed):
            wrong.append(str(entry))
    assert not wrong


@pytest.mark.parametrize("room", ["core", "sim", "workload", "report"])
def test_source_of_pure_rooms_never_names_ray(room: str) -> None:
    assert not [str(e) for e in IMPORTS if room_of(e.file) == room and e.module.split(".")[0] == "ray"]


def modules_of(room: str) -> list[str]:
    names = (path.relative_to(PACKAGE).with_suffix("").parts for path in SOURCES)
    dotted = (".".join(("olp_ray", *parts)).removesuffix(".__init__") for parts in names)
    return [name for name in dotted if name == f"olp_ray.{room}" or name.startswith(f"olp_ray.{room}.")]


def loaded_after_importing(modules: list[str]) -> set[str]:
    lines = [*(f"import {name}" for name in modules), "import sys", "print(*{m.split('.')[0] for m in sys.modules})"]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_pure_rooms_loads_no_ray() -> None:
    modules = [name for room in ("core", "config", "sim", "workload", "report") for name in modules_of(room)]
    assert "ray" not in loaded_after_importing(modules)


def test_importing_the_package_loads_neither_ray_nor_matplotlib() -> None:
    assert not {"ray", "matplotlib"} & loaded_after_importing(["olp_ray"])


def test_kernels_are_not_compiled_before_they_are_used() -> None:
    modules = ["olp_ray.config", "olp_ray.core.policies", "olp_ray.core.router", "olp_ray.cli", "olp_ray.sim"]
    assert "numba" not in loaded_after_importing(modules)
