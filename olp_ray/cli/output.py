"""Printing: tables that never lose a column, and progress of what takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from olp_ray.sweep.trial import Arrivals


def print_table(table: Table) -> None:
    """Print in full width, also where the terminal is narrower or there is none."""
    natural = Console(width=1000).measure(table).maximum
    Console(width=max(Console().width, natural)).print(table)


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr if that is a terminal, told (done, in all); it goes away at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def show_arrivals(arrivals: Arrivals) -> None:
    """One line: the rate that arrivals were rescaled to, and why."""
    if arrivals.rate is None:
        text = "Arrivals come at their own times."
    elif arrivals.saturation is None:
        text = f"Arrivals: {arrivals.rate:.4g} requests/s."
    else:
        load = arrivals.rate / arrivals.saturation
        text = f"Arrivals: {arrivals.rate:.4g} requests/s, load {load:.3g} of the {arrivals.saturation:.4g} requests/s "
        text += "that the fleet serves while more wait than it holds (central FIFO)."
    Console().print(text, soft_wrap=True, highlight=False)
