"""Lists of names as given on the command line: each becomes what it names, or an error that says what is allowed."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.quality.cells import BUILT_IN, CELLS, CONVERSATIONS, Cell, PeriodCell
from benchmarks.quality.entries import BASELINES, VARIANTS, ablations, check_entry, ours
from olp_ray.config import nearest
from olp_ray.errors import ConfigError, OlpRayError

GROUPS = ("ours", "baselines", "ablations")


def read_seeds(text: str) -> list[int]:
    """Distinct whole numbers >= 0, in the order given. Raises `click.UsageError`."""
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        if not (part.isascii() and part.isdigit()):
            raise click.UsageError(f"--seeds {text!r}: expected whole numbers >= 0 like 101,102, got {part!r}")
    return list(dict.fromkeys(map(int, parts)))


def read_variants(text: str) -> list[str]:
    """Raises `click.UsageError`."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in VARIANTS:
            raise click.UsageError(f"--variants {name!r} is unknown{nearest(name, VARIANTS)}")
    return list(dict.fromkeys(names))


def read_entries(text: str | None, variant: str) -> list[str]:
    """Entries by name or by group; None is all of them. Raises `click.UsageError`."""
    groups: dict[str, Sequence[str]] = dict(zip(GROUPS, (ours(variant), BASELINES, ablations(variant)), strict=True))
    names: list[str] = []
    for name in (text or ",".join(GROUPS)).split(","):
        names += groups.get(name.strip(), [name.strip()])
    try:
        for name in names:
            check_entry(name)
    except (ConfigError, OlpRayError) as error:
        raise click.UsageError(f"--policies: {error}; groups: {', '.join(GROUPS)}") from error
    return list(dict.fromkeys(names))


def read_cells(text: str, traces: Path | None) -> list[Cell]:
    """Cells that match one of the patterns, in the order of the matrix. Raises `click.UsageError`.

    Timed cells replay traces: without a folder of them a pattern that matches timed cells only is an error, and others
    lose their timed ones, which is told.
    """
    names = []
    for pattern in (part.strip() for part in text.split(",")):
        found = fnmatch.filter(CELLS, pattern)
        if not found:
            raise click.UsageError(f"--cells {pattern!r} matches nothing{nearest(pattern, CELLS)}")
        if traces is None and not any(isinstance(CELLS[name], PeriodCell) for name in found):
            raise click.UsageError(f"--cells {pattern!r}: timed cells replay traces; give their folder as --traces DIR")
        names += found
    cells = [cell for name, cell in CELLS.items() if name in names]
    if traces is not None:
        _check_traces(cells, traces)
        return cells
    kept: list[Cell] = [cell for cell in cells if isinstance(cell, PeriodCell)]
    if len(kept) < len(cells):
        left_out = len(cells) - len(kept)
        click.echo(f"{left_out} timed cells are left out: they replay traces, which --traces DIR names", err=True)
    return kept


def _check_traces(cells: Sequence[Cell], traces: Path) -> None:
    """Raise `click.UsageError` unless the folder holds every file that the cells read."""
    for cell in cells:
        file = cell.lengths if isinstance(cell, PeriodCell) else cell.trace
        if file.endswith(".csv") and not (traces / file).is_file():
            hint = f" (without --traces, period cells take the built-in {BUILT_IN})" if file == CONVERSATIONS else ""
            raise click.UsageError(f"--traces {str(traces)!r}: cell {cell.name} reads {file}, which is not there{hint}")
