"""What a price update costs inline and on price shards, by fleet size and queue, and what admission feels of it.

    python -m benchmarks.ray_tick [--quick] [--write-page]

Inline, the whole update stands in the way of a request that comes meanwhile. On shards only handing it over and taking
tables back does; the rounds run beside it and have to be done within the update interval. `admission` is how long a
request waits that comes at a random moment: for what the router's thread is at, then for its own decision, which is
measured on a router of that size with so many waiting. Wall-clock times.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import click
import numpy as np

from benchmarks.price_works import WorkStream
from benchmarks.results_page import records_table, replace_section
from benchmarks.tick import Bench
from olp_ray.config import RouterConfig, RuntimeConfig
from olp_ray.core.prices import InlinePricer, Pricer
from olp_ray.runtime.ray_pricer import RayPricer
from olp_ray.runtime.shard_pool import ShardPool
from olp_ray.runtime.wiring import open_ray

DEVICES = (4, 16, 64, 256, 1024)
WAITING = (0, 100, 1000)
SHARDS = (1, 2, 4, 8)
HOLD_GOAL_MS = 10.0  # of the way from submit to assignment
BUCKETS, SAMPLES = 128, 128  # as the default policy has them: 64 from history and 64 that wait


class Cost(NamedTuple):
    """Medians in ms: until the tables are there, and of that, how long the router's thread was held."""

    update_ms: float
    held_ms: float


def measure(pricer: Pricer, devices: int, updates: int, idle_s: float) -> Cost:
    """The router's thread does nothing for idle_s between handing over and taking back, so rounds can be done."""
    stream = WorkStream(devices, BUCKETS, SAMPLES)
    held, total = [], []
    for _ in range(updates + 1):
        work = stream.next()
        began = time.perf_counter()
        pricer.submit(work)
        handed_over = time.perf_counter() - began
        time.sleep(idle_s)
        back = time.perf_counter()
        stream.took(pricer.collect())
        held.append(handed_over + time.perf_counter() - back)
        total.append(pricer.status().rounds_s if isinstance(pricer, RayPricer) else handed_over)
    return Cost(1e3 * float(np.median(total[1:])), 1e3 * float(np.median(held[1:])))


def update_rows(sizes: Sequence[int], updates: int) -> list[dict[str, float]]:
    """Each size inline and on each number of shards; a number's processes serve all sizes."""
    rows: list[dict[str, float]] = []
    for devices in sizes:
        inline = measure(InlinePricer(), devices, updates, idle_s=0.0)
        rows.append({"devices": devices, "inline": inline.update_ms})
    for shards in SHARDS:
        pricer = RayPricer(ShardPool(shards, RuntimeConfig()))
        pricer.wait_until_up()
        for row in rows:
            cost = measure(pricer, int(row["devices"]), updates, idle_s=2 * row["inline"] / 1e3 + 0.05)
            row |= {f"{shards} shards": cost.update_ms, f"held by {shards}": cost.held_ms}
        pricer.close()
        click.echo(f"{shards} shards are measured", err=True)
    return rows


class Busy(Bench):
    """A full fleet with a queue, filled in portions that also a large fleet can look at at once."""

    def fill(self) -> None:
        while len(self.router.queue) <= max(self._waiting, 64):
            self._arrive(512)
            self.tick()
        for entry in list(self.router.queue)[self._waiting :]:
            self.router.queue.remove(entry.request)
        self.tick()

    def arrive(self) -> None:
        """One request for the next decision."""
        self._arrive(1)


def decisions_s(devices: int, waiting: int, count: int) -> np.ndarray:
    """Seconds of single decisions of a router of this size, without price updates."""
    bench = Busy(devices, waiting, "online_lp")
    bench.fill()
    found: list[float] = []
    while len(found) < count:
        if not waiting:
            bench.arrive()
        spent, launched = bench.tick()
        if not launched:
            found.append(spent)
    return np.array(found)


def admission_ms(held_ms: float, own_s: np.ndarray, interval_s: float) -> str:
    """p50 / p99 of a request that comes at a random moment between two updates, from the parts measured."""
    rng = np.random.default_rng(0)
    left_s = np.maximum(held_ms / 1e3 - rng.uniform(0, interval_s, 20_000), 0.0)
    p50, p99 = 1e3 * np.percentile(left_s + rng.choice(own_s, left_s.size), (50, 99))
    return f"{p50:.2f} / {p99:.1f}"


def admission_rows(rows: list[dict[str, float]], count: int) -> list[dict[str, str]]:
    """p50 / p99 of admission for each size, queue and way of pricing."""
    interval_s = RouterConfig().settings("timed").online_lp.update_s
    found = []
    for row in rows:
        for waiting in WAITING:
            own_s = decisions_s(int(row["devices"]), waiting, count)
            held = {"inline": row["inline"], **{f"{n} shards": row[f"held by {n}"] for n in SHARDS}}
            ways = {name: admission_ms(ms, own_s, interval_s) for name, ms in held.items()}
            own_ms = f"{1e3 * float(np.median(own_s)):.2f}"
            found.append({"devices": f"{row['devices']:g}", "waiting": str(waiting), "own decision": own_ms, **ways})
            click.echo(found[-1], err=True)
    return found


def decision_model(rows: list[dict[str, str]]) -> str:
    """In words: a line through the decision times over fleet size for each queue, and where it meets the goal."""
    lines = []
    for waiting in WAITING:
        of_queue = [row for row in rows if row["waiting"] == str(waiting)]
        devices = np.array([float(row["devices"]) for row in of_queue])
        slope, fixed = np.polyfit(devices, np.array([float(row["own decision"]) for row in of_queue]), 1)
        ends = (HOLD_GOAL_MS - fixed) / slope
        lines.append(f"{waiting} waiting: {fixed:.2f} ms + {slope:.4f} ms per device, {ends:.0f} devices")
    return (
        f"Decisions alone, least squares, and the fleet at which one takes {HOLD_GOAL_MS:g} ms, which is where one "
        f"coordinator ends: {'; '.join(lines)}. Beyond that a fleet would be cut into cells with a coordinator each, "
        "devices and tenants split by a front that knows the cells' prices: that is a plan, it is not built."
    )


def crossover(rows: list[dict[str, float]]) -> str:
    """In words: where shards finish sooner than inline, and where inline holds admission beyond the goal."""
    sooner = [row["devices"] for row in rows if min(row[f"{n} shards"] for n in SHARDS) < row["inline"]]
    over = [row["devices"] for row in rows if row["inline"] > HOLD_GOAL_MS]
    return (
        f"shards finish sooner than inline at {_sizes(sooner)}; "
        f"inline holds admission for more than {HOLD_GOAL_MS:g} ms at {_sizes(over)}, which is what `auto` avoids"
    )


def cost_model(rows: list[dict[str, float]]) -> str:
    """In words: a line through the times over fleet size, and where it meets the update interval."""
    devices = np.array([row["devices"] for row in rows])
    interval_ms = 1e3 * RouterConfig().settings("timed").online_lp.update_s
    lines = []
    for name, times in (
        ("inline", [row["inline"] for row in rows]),
        ("the best shard count", [min(row[f"{n} shards"] for n in SHARDS) for row in rows]),
    ):
        slope, fixed = np.polyfit(devices, np.array(times), 1)
        ends = (interval_ms - fixed) / slope
        lines.append(f"{name}: {fixed:.1f} ms + {slope:.3f} ms per device, the interval is full at {ends:.0f} devices")
    return (
        f"Pricing alone, least squares against the default update interval of {interval_ms:.0f} ms: {'; '.join(lines)}."
    )


def _sizes(devices: list[float]) -> str:
    return "no size" if not devices else ", ".join(f"{size:g}" for size in devices) + " devices"


@click.command()
@click.option("--quick", is_flag=True, help="Fewer sizes and updates.")
@click.option("--write-page", is_flag=True, help="Write the table into docs/results.md.")
def main(quick: bool, write_page: bool) -> None:
    """Measure and print."""
    busy = os.getloadavg()[0]
    open_ray()
    updates = 5 if quick else 12
    rows = update_rows(DEVICES[:3] if quick else DEVICES, updates)
    table = records_table([{k: f"{v:g}" if k == "devices" else f"{v:.1f}" for k, v in row.items()} for row in rows])
    admissions = admission_rows(rows, 20 if quick else 40)
    text = (
        "## Price updates inline and on shards\n\n"
        f"Milliseconds of one update of two rounds ({BUCKETS} buckets, {SAMPLES} samples a round), median of "
        f"{updates}; `held by n` is how long the router's own thread was held with n shards, which inline is the "
        f"whole update. {os.cpu_count()} cores, load average before the run {busy:.1f} "
        "(`python -m benchmarks.ray_tick --write-page`). "
        f"On this machine {crossover(rows)}.\n\n{table}\n\n{cost_model(rows)}\n\n"
        "Admission, p50 / p99 in ms, of a request that comes at a random moment: what is left of the hold that it "
        "meets (above), then its own decision on a full fleet with so many waiting (process time).\n\n"
        f"{records_table(admissions)}\n\n{decision_model(admissions)}"
    )
    click.echo(text)
    if write_page:
        replace_section("ray_tick", text)


if __name__ == "__main__":
    main()
