"""Whether compiled graphs make the rounds of a price update faster than ordinary actor calls.

    python -m benchmarks.ray_compiled [--shards 4] [--rounds 300] [--write-page]

The same actors answer the same arrays twice: called one by one and gathered, and as one compiled graph. A round is what
an update does K + 1 times; payloads have the size of the bids of 128 samples.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np
import ray
from ray.dag import InputNode, MultiOutputNode

from benchmarks.results_page import records_table, replace_section
from olp_ray.runtime.wiring import open_ray

SAMPLES = 128


class Bidder:
    """Answers a round's winners with bids of the usual shapes, without computing any."""

    def bids(self, winners: Any) -> Any:
        return np.zeros(SAMPLES), np.zeros(SAMPLES, dtype=np.int64), np.zeros(SAMPLES, dtype=np.int64)


def timed(call: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """p50 and p99 in ms."""
    took = []
    for _ in range(rounds + 20):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    p50, p99 = 1e3 * np.percentile(took[20:], (50, 99))
    return float(p50), float(p99)


def measure(shards: int, rounds: int) -> list[dict[str, str]]:
    winners = (np.zeros(SAMPLES, dtype=np.int64), np.zeros(SAMPLES, dtype=np.int64))
    actors: list[Any] = [ray.remote(Bidder).options(num_cpus=0).remote() for _ in range(shards)]
    ordinary = timed(lambda: ray.get([actor.bids.remote(winners) for actor in actors]), rounds)
    with InputNode() as given:
        graph = MultiOutputNode([actor.bids.bind(given) for actor in actors]).experimental_compile()
    compiled = timed(lambda: ray.get(graph.execute(winners)), rounds)
    graph.teardown()
    for actor in actors:
        ray.kill(actor)
    return [
        {"shards": str(shards), "way": way, "round p50 ms": f"{p50:.2f}", "round p99 ms": f"{p99:.2f}"}
        for way, (p50, p99) in (("calls", ordinary), ("compiled graph", compiled))
    ]


@click.command()
@click.option("--shards", default="1,4,8", show_default=True)
@click.option("--rounds", default=300, show_default=True)
@click.option("--write-page", is_flag=True, help="Write the section of docs/results.md.")
def main(shards: str, rounds: int, write_page: bool) -> None:
    """Measure and print."""
    busy = os.getloadavg()[0]
    open_ray()
    rows = [row for count in shards.split(",") for row in measure(int(count), rounds)]
    text = (
        "## Rounds by calls and by compiled graphs\n\n"
        f"{os.cpu_count()} cores, load average before the run {busy:.1f} "
        "(`python -m benchmarks.ray_compiled --write-page`). An update has three rounds of calls in 333 ms and runs "
        "beside admission, so neither way is felt by a request. The router uses calls: a graph has to be compiled anew "
        f"after each fault, and one actor's silence holds the whole round.\n\n{records_table(rows)}"
    )
    click.echo(text)
    if write_page:
        replace_section("ray_compiled", text)


if __name__ == "__main__":
    main()
