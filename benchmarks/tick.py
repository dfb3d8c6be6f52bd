"""What one decision and one price step cost, by devices and waiting requests: process time on this machine.

    python -m benchmarks.tick [--quick] [--write-page]

A full fleet with a queue in front of it: every period a few residents finish and as many requests arrive, so each
decision has room for few of many. Which part of the time goes where is for a profiler; results here are totals.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np

from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_router
from olp_ray.core.prices import InlinePricer, run_update, split_devices
from olp_ray.core.types import Arrived, Assign, AssignmentKey, Event, Finished, PriceWork, Request, Started
from olp_ray.workload.generators import generate

DEVICES = (1, 4, 16, 64, 256)
WAITING = (0, 100, 1000, 5000)
DEVICE = "B24M40000"
FINISHED_EACH_TICK = 1
GOALS_MS = {(4, 100): 0.3, (64, 1000): 2.0}
GOAL_TEXT = "goals: .3 ms at 4 devices and 100 waiting, 2 ms at 64 devices and 1000 waiting"


class Cost(NamedTuple):
    """Milliseconds: median and 90th percentile of decisions and of steps (rounds) of an update; launch is the
    router's own part of an update."""

    devices: int
    waiting: int
    decision_ms: float
    decision_p90_ms: float
    launch_ms: float
    step_ms: float
    step_p90_ms: float


class Bench:
    """A router in the state to be timed, and the engines' part of the conversation."""

    def __init__(self, devices: int, waiting: int, policy: str, horizon_s: float | None = None) -> None:
        fleet = FleetConfig.parse(f"{devices}x{DEVICE}")
        config = RouterConfig().with_policy(policy)
        if horizon_s is not None:
            lp = config.online_lp.model_copy(update={"horizon_s": horizon_s})
            config = config.model_copy(update={"online_lp": lp})
        self.router = build_router(config, fleet, "period", seed=0)
        lengths = generate("chat1m", 20_000, 1.0, seed=1)
        self._lengths = itertools.cycle(
            zip(lengths["num_prefill_tokens"].tolist(), lengths["num_decode_tokens"].tolist(), strict=True)
        )
        self._pricer = InlinePricer()
        self._ids = itertools.count()
        self._running: deque[tuple[AssignmentKey, int]] = deque()
        self._events: list[Event] = []
        self._due_s = float("inf")
        self.now_s = 0.0
        self._waiting = waiting
        self.works: list[PriceWork] = []

    def fill(self) -> None:
        """Arrivals until nothing fits any more and the queue is as long as asked for; then some ticks to settle."""
        batch = 32 * max(1, len(self.router.ledger.devices))
        while True:
            self._arrive(batch)
            self.tick()
            if len(self.router.queue) > batch // 2:
                break
        for entry in list(self.router.queue)[self._waiting :]:
            self.router.queue.remove(entry.request)
        for _ in range(20):
            self.tick()

    def tick(self) -> tuple[float, bool]:
        """One period; returns seconds of the router's call, and whether it launched a price update."""
        self.now_s += 1.0
        for _ in range(min(FINISHED_EACH_TICK, len(self._running))):
            key, output_tokens = self._running.popleft()
            self._events.append(Finished(key, output_tokens))
        self._arrive(max(0, self._waiting + 1 - len(self.router.queue)) if self._waiting else 0)
        if self.now_s >= self._due_s:
            self._events = [*self._pricer.collect(), *self._events]
        events, self._events = self._events, []
        began = time.process_time()
        step = self.router.handle(self.now_s, events)
        spent = time.process_time() - began
        for decision in step.decisions:
            if isinstance(decision, Assign):
                self._events.append(Started(decision.key))
                self._running.append((decision.key, int(decision.request.predicted_output_tokens)))
        if step.price_work is not None:
            self._due_s = step.price_work.due_s
            self._pricer.submit(step.price_work)
            self.works.append(step.price_work)
        return spent, step.price_work is not None

    def _arrive(self, count: int) -> None:
        for _ in range(count):
            prompt, output = next(self._lengths)
            self._events.append(Arrived(Request(f"r{next(self._ids):07d}", self.now_s, prompt, float(output))))


def measure(
    devices: int, waiting: int, repeats: int, policy: str = "online_lp", horizon_s: float | None = None
) -> Cost:
    """Time `repeats` decisions, and the price updates among them, at this size."""
    bench = Bench(devices, waiting, policy, horizon_s)
    bench.fill()
    decisions, launches = [], []
    bench.works.clear()
    while len(decisions) < repeats:
        spent, launched = bench.tick()
        (launches if launched else decisions).append(spent)
    steps = [_step_s(work) for work in bench.works[-3:] for _ in range(3)]
    return Cost(
        devices,
        waiting,
        *_median_p90(decisions),
        1e3 * float(np.median(launches)) if launches else float("nan"),
        *(_median_p90(steps) if steps else (float("nan"), float("nan"))),
    )


def _step_s(work: PriceWork) -> float:
    """Seconds of one gradient step of one block with all devices; an update has `work.rounds` of them."""
    from olp_ray.core.prices import PriceBlock

    blocks = [
        PriceBlock(indices, np.zeros((len(indices), 2, work.capacity.shape[2])), work.grid)
        for indices in split_devices(len(work.device_ids), 1)
    ]
    began = time.process_time()
    run_update(blocks, work)
    return (time.process_time() - began) / work.rounds


def _median_p90(seconds: Sequence[float]) -> tuple[float, float]:
    return 1e3 * float(np.median(seconds)), 1e3 * float(np.quantile(seconds, 0.9))


def slopes(costs: Sequence[Cost]) -> str:
    """Least squares of the decision's milliseconds on 1, waiting, devices and waiting x devices."""
    size = np.array([(1.0, c.waiting / 1000, c.devices, c.waiting / 1000 * c.devices) for c in costs])
    decision, *_ = np.linalg.lstsq(size, np.array([c.decision_ms for c in costs]), rcond=None)
    priced = np.isfinite([c.step_ms for c in costs])
    step, *_ = np.linalg.lstsq(size[priced], np.array([c.step_ms for c in costs])[priced], rcond=None)
    names = ("", " per 1000 waiting", " per device", " per device and 1000 waiting")
    lines = [
        f"{kind}: " + " + ".join(f"{value:.3f} ms{name}" for value, name in zip(found, names, strict=True))
        for kind, found in (("decision", decision), ("price step", step))
    ]
    return "; ".join(lines)


def report(costs: Sequence[Cost], by_horizon: Sequence[tuple[float, Cost]]) -> str:
    rows: list[dict[str, Any]] = []
    for cost in costs:
        goal = GOALS_MS.get((cost.devices, cost.waiting))
        met = "" if goal is None else (f"{goal} ms: met" if cost.decision_ms <= goal else f"{goal} ms: **missed**")
        times = {name: value for name, value in cost._asdict().items() if name.endswith("_ms")}
        numbers = {name: f"{value:.2f}" if np.isfinite(value) else "-" for name, value in times.items()}
        rows.append({"devices": str(cost.devices), "waiting": str(cost.waiting), **numbers, "goal": met})
    horizon = ", ".join(f"{cost.step_ms:.2f} ms at H={h:g}" for h, cost in by_horizon)
    return "\n\n".join(
        [
            "## Time of one decision",
            "`python -m benchmarks.tick --write-page` writes this section: process time on the machine at hand, period "
            f"model, devices of {DEVICE[1:3]} slots, `balanced`; {GOAL_TEXT}. A decision frees one slot and looks at "
            "all that wait. launch is the router's part of a decision with a price update; a step is one of its "
            "gradient steps over all devices in one block, which an actor does beside; -: so few had come that nothing "
            "was priced.",
            records_table(rows),
            f"Least squares over the table: {slopes(costs)}.",
            f"Price step by horizon (4 devices, 100 waiting): {horizon}." if horizon else "",
        ]
    )


@click.command()
@click.option("--quick", is_flag=True, help="Up to 64 devices and 1000 waiting, few repeats.")
@click.option("--write-page", is_flag=True, help="Write the section in docs/results.md.")
def main(quick: bool, write_page: bool) -> None:
    """Print what a decision and a price step cost, by devices and waiting requests, on this machine.

    \b
    Examples:
      python -m benchmarks.tick --quick        # half a minute
      python -m benchmarks.tick --write-page   # all sizes, into docs/results.md
    """
    sizes = [(g, w) for g in DEVICES for w in WAITING if not quick or (g <= 64 and w <= 1000)]
    costs = []
    for devices, waiting in sizes:
        repeats = 20 if quick or devices * waiting > 100_000 else 100
        costs.append(measure(devices, waiting, repeats))
        click.echo(str(costs[-1]), err=True)
    horizons = (512.0, 2048.0, 8192.0)
    text = report(costs, [(h, measure(4, 100, 30, horizon_s=h)) for h in horizons])
    click.echo(text)
    if write_page:
        replace_section("tick", text)


if __name__ == "__main__":
    main()
