"""Is the paper's price update linear in K G H, as its Section 3.3 says? Process time of Algorithm 2, and a fitted line.

    python -m benchmarks.paper_scaling [--write-page]

One update over a full history, by devices, slots ahead and steps. Admission and the router are not in it:
`benchmarks.tick` times those for `online_lp`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import click
import numpy as np

from benchmarks.results_page import records_table, replace_section
from olp_ray.core.paper_prices import Column, PaperPrices

DEVICES = (1, 4, 16, 64)
SLOTS = (256, 1024, 4096)
STEPS = (1, 5)
COLUMNS, BATCH = 1000, 64
LIFE_SLOTS = 200  # mean length of a column


class UpdateCost(NamedTuple):
    """Milliseconds of one update, least of the repeats."""

    devices: int
    slots: int
    steps: int
    update_ms: float


def measure(devices: int, slots: int, steps: int, repeats: int) -> UpdateCost:
    """Time updates whose columns lie anywhere in `slots` slots ahead."""
    rng = np.random.default_rng(0)
    prices = PaperPrices(slots, COLUMNS)
    prices.follow([f"d{g}" for g in range(devices)], 1e-4)
    columns = np.empty((COLUMNS, len(Column)))
    columns[:, Column.DEVICE] = rng.integers(0, devices, COLUMNS)
    columns[:, Column.START] = rng.integers(0, slots, COLUMNS)
    columns[:, Column.STOP] = np.minimum(columns[:, Column.START] + rng.integers(1, 2 * LIFE_SLOTS, COLUMNS), slots)
    columns[:, Column.LEVEL] = rng.integers(10, 500, COLUMNS)
    columns[:, Column.GROWTH] = 1.0
    columns[:, Column.REWARD] = 1.0
    prices.record(columns)
    scarcity = np.full((devices, 2, prices.slots_ahead(0)), 0.01)
    rewards = rng.uniform(0, 1, COLUMNS)
    spent = []
    for _ in range(repeats):
        began = time.process_time()
        prices.update(0, scarcity, rewards, 1e-4, steps, BATCH, rng)
        spent.append(time.process_time() - began)
    return UpdateCost(devices, slots, steps, 1e3 * min(spent))


def fit(costs: Sequence[UpdateCost]) -> tuple[float, float, float]:
    """(ms of a step whatever its size, ms per step and 1000 device slots, R squared), by least squares."""
    size = np.array([(c.steps, c.steps * c.devices * c.slots / 1000) for c in costs])
    spent = np.array([c.update_ms for c in costs])
    found, *_ = np.linalg.lstsq(size, spent, rcond=None)
    residual = spent - size @ found
    return float(found[0]), float(found[1]), 1.0 - float(residual @ residual / ((spent - spent.mean()) ** 2).sum())


def report(costs: Sequence[UpdateCost]) -> str:
    base, slope, r_squared = fit(costs)
    rows = [
        {"devices": str(c.devices), "slots": str(c.slots), "steps": str(c.steps), "update_ms": f"{c.update_ms:.2f}"}
        for c in costs
    ]
    return "\n\n".join(
        [
            "## The paper's price update by size",
            "`python -m benchmarks.paper_scaling --write-page` writes this section: process time of Algorithm 2 in "
            f"`online_lp_paper`, {COLUMNS} recorded columns, batches of {BATCH}. Section 3.3 of the paper says that it "
            "is linear in K G H.",
            records_table(rows),
            f"Least squares: {base:.3f} ms per step + {slope:.4f} ms per step and 1000 device slots; R² "
            f"{r_squared:.3f}.",
        ]
    )


@click.command()
@click.option("--write-page", is_flag=True, help="Write the section in docs/results.md.")
def main(write_page: bool) -> None:
    """Print the table and the line."""
    text = report([measure(g, h, k, repeats=15) for g in DEVICES for h in SLOTS for k in STEPS])
    click.echo(text)
    if write_page:
        replace_section("paper_scaling", text)


if __name__ == "__main__":
    main()
