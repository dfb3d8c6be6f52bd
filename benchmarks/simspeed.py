"""Speed of the simulator: process CPU per policy and stage, and growth with requests, devices and load.

    python benchmarks/simspeed.py TRACE.csv            floors: whole trace, load 1.0, best of 5
    python benchmarks/simspeed.py TRACE.csv --growth   growth with requests, devices and load

Only the simulation is timed: not reading the trace, not measuring the saturation rate. Beside it: Vidur simulates 270
to 330 requests per CPU second of this trace with round robin, 96 with the linear program of the paper's authors.
"""

from __future__ import annotations

import time

import click

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.sim import saturation_rate, simulate
from olp_ray.workload import SimRequest, make_requests, parse_predictor, read_trace, with_rate

FLOORS_S = {"round_robin": 2.0, "online_lp": 15.0}
VIDUR_PER_S = {"round_robin": 300.0, "online_lp": 96.0}


def cpu_s(requests: list[SimRequest], fleet: FleetConfig, policy: str, stage: str, repeats: int) -> float:
    """Least process CPU of `repeats` equal runs, seconds."""
    config = RouterConfig(policy=policy)
    update_s = config.settings("timed").online_lp.update_s
    sim = SimConfig.model_validate({"stage": stage})
    times = []
    for _ in range(repeats):
        router = build_priced_router(config, fleet, "timed", 0)
        began = time.process_time()
        simulate(requests, fleet, "timed", router, update_s=update_s, sim=sim)
        times.append(time.process_time() - began)
    return min(times)


def row(label: str, requests: list[SimRequest], fleet: str, policy: str, stage: str, repeats: int) -> float:
    seconds = cpu_s(requests, FleetConfig.parse(fleet), policy, stage, repeats)
    per_s = len(requests) / seconds
    ratio = per_s / VIDUR_PER_S[policy]
    print(f"{label:34s} {policy:12s} {stage:14s} {seconds:8.2f} s  {per_s:8.0f} /s  {ratio:6.1f} x Vidur")
    return seconds


@click.command()
@click.argument("trace", type=click.Path(exists=True))
@click.option("--growth", is_flag=True, help="Growth instead of floors.")
@click.option("--repeats", default=5, show_default=True)
def main(trace: str, growth: bool, repeats: int) -> None:
    whole = make_requests(read_trace(trace), parse_predictor("uniform:0.2"), 0, rotate=False)
    if growth:
        measure_growth(whole, repeats)
        return
    for fleet in ("4xa100-7b", "4xa100-8b"):
        requests = with_rate(whole, saturation_rate(whole, FleetConfig.parse(fleet), "timed"))
        for policy, floor_s in FLOORS_S.items():
            seconds = row(f"{fleet}, load 1.0", requests, fleet, policy, "mixed", repeats)
            print(f"    floor {floor_s:g} s: {'met' if seconds <= floor_s else 'MISSED'}")
        row(f"{fleet}, load 1.0", requests, fleet, "round_robin", "disaggregated", repeats)


def measure_growth(whole: list[SimRequest], repeats: int) -> None:
    per_device = saturation_rate(whole[:2000], FleetConfig.parse("1xa100-8b"), "timed")
    for policy in FLOORS_S:
        for count in (1000, 2000, 4000):
            row(f"{count} requests", with_rate(whole[:count], 4 * per_device), "4xa100-8b", policy, "mixed", repeats)
        for devices in (2, 8, 16):
            requests = with_rate(whole[:2000], devices * per_device)
            row(f"2000 requests, {devices} devices", requests, f"{devices}xa100-8b", policy, "mixed", repeats)
        for load in (0.5, 0.9, 1.2):
            requests = with_rate(whole[:2000], 4 * load * per_device)
            row(f"2000 requests, load {load}", requests, "4xa100-8b", policy, "mixed", repeats)


if __name__ == "__main__":
    main()
