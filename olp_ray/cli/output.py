"""Printing: tables, and progress of what takes longer than a moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from olp_ray.config import Mode
from olp_ray.core.types import Objective
from olp_ray.report.tables import shown_unit
from olp_ray.sweep.trial import Arrivals

FIRST_LINE_S = 2.0  # without a terminal, progress is told in lines: the first after this time
LINES_EVERY_S = 10.0


def print_table(table: Table) -> None:
    """Print in full width, also where the terminal is narrower or there is none."""
    natural = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, natural)).print(table)


class Told:
    """Progress of one thing after another: a bar on a terminal, now and then a line elsewhere, both on stderr."""

    def __init__(self, console: Console, bar: Progress, task: TaskID, doing: str) -> None:
        self._console, self._bar, self._task, self._doing = console, bar, task, doing
        self._next_line_s = time.monotonic() + FIRST_LINE_S

    def __call__(self, done: float, total: int) -> None:
        """done of total is done."""
        self._bar.update(self._task, completed=done, total=total)
        if not self._console.is_terminal and time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + LINES_EVERY_S
            self._console.print(f"{self._doing}: {int(done)} of {total}", soft_wrap=True, highlight=False)

    def now(self, doing: str) -> None:
        """What is done from here on."""
        self._doing = doing
        self._bar.update(self._task, description=doing, completed=0, total=None)

    def say(self, line: str) -> None:
        """Something to know beside how far it is."""
        self._console.print(line, soft_wrap=True, highlight=False)


COMPILING = "Compiling kernels, once after an install or an update: up to half a minute of CPU."


@contextmanager
def progress_bar(doing: str) -> Iterator[Told]:
    """Tells how far something is; a bar goes away at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield Told(console, bar, bar.add_task(doing, total=None), doing)


def show_arrivals(arrivals: Arrivals, mode: Mode) -> None:
    """One line: the rate that arrivals were rescaled to, per second or per period as mode has it, and why."""
    unit = "requests per period" if mode == "period" else "requests/s"
    if arrivals.rate is None:
        text = "Arrivals come at their own times."
    elif arrivals.saturation is None:
        text = f"Arrivals: {arrivals.rate:.4g} {unit}."
    else:
        load = arrivals.rate / arrivals.saturation
        text = f"Arrivals: {arrivals.rate:.4g} {unit}, load {load:.3g} of the {arrivals.saturation:.4g} {unit} "
        text += (
            f"that the fleet serves of the first {arrivals.measured_requests} requests while more wait than it holds "
            "(central FIFO)."
        )
    Console().print(text, soft_wrap=True, highlight=False)


def deadlines(objective: Objective, mode: Mode) -> str:
    """One sentence: what counts as in time."""
    unit = shown_unit("s", mode)
    ttft, e2e = objective.ttft_threshold_s, objective.e2e_threshold_s
    return f"In time: TTFT at most {ttft:g} {unit} and E2E at most {e2e:g} {unit}."


def show_replaced(files: int, folder: str) -> None:
    """One line when files of an earlier run made way."""
    if files:
        Console().print(f"Replaced {files} files of an earlier run in {folder}.", soft_wrap=True, highlight=False)
