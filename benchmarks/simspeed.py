"""Speed of the simulator: process CPU per policy and stage, and growth with requests, devices and load.

    python -m benchmarks.simspeed TRACE.csv [--repeats 5] [--growth-requests 2000] [--write-page]

Only the simulation is timed, as the least process CPU of equal runs: not reading the trace, not measuring the
saturation rate, not building the router. Floors are those of the whole trace in the mixed stage at load 1.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from benchmarks.results_page import records_table, replace_section
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import SimConfig
from olp_ray.sim import saturation_rate, simulate
from olp_ray.workload import SimRequest, make_requests, parse_predictor, read_trace, with_rate

FLEETS = ("4xa100-7b", "4xa100-8b")  # bound by KV memory, bound by slots
POLICIES = ("round_robin", "least_outstanding", "central_fifo", "online_lp")
STAGES = ("mixed", "disaggregated")
FLOORS_S = {"round_robin": 2.0, "online_lp": 15.0}
GOALS_S = {"round_robin": 0.7, "online_lp": 4.0}
# requests per CPU second of Vidur on the Azure-2023 conversations (14 requests/s, 4 replicas, 1500 requests): 270 to
# 330 with round robin or least outstanding, 96 with the linear program of the paper's authors
VIDUR_PER_S = {"round_robin": 300.0, "least_outstanding": 300.0, "online_lp": 96.0}

Row = Mapping[str, str]
Show = Callable[[str], None]


def cpu_s(requests: list[SimRequest], fleet: str, policy: str, stage: str, repeats: int) -> float:
    """Least process CPU of `repeats` equal runs, seconds."""
    config, devices = RouterConfig(policy=policy), FleetConfig.parse(fleet)
    update_s = config.settings("timed").online_lp.update_s
    sim = SimConfig.model_validate({"stage": stage})
    times = []
    for _ in range(repeats):
        router = build_priced_router(config, devices, "timed", 0)
        began = time.process_time()
        simulate(requests, devices, "timed", router, update_s=update_s, sim=sim)
        times.append(time.process_time() - began)
    return min(times)


def speeds(whole: list[SimRequest], repeats: int, show: Show) -> list[Row]:
    """The whole trace at load 1: every fleet, stage and policy."""
    rows = []
    for fleet in FLEETS:
        for stage in STAGES:
            sim = SimConfig.model_validate({"stage": stage})
            requests = with_rate(whole, saturation_rate(whole, FleetConfig.parse(fleet), "timed", sim))
            for policy in POLICIES:
                show(f"{fleet}, {stage}, {policy}")
                seconds = cpu_s(requests, fleet, policy, stage, repeats)
                rows.append(speed_row(fleet, stage, policy, len(requests), seconds))
    return rows


def speed_row(fleet: str, stage: str, policy: str, count: int, seconds: float) -> Row:
    per_s, vidur = count / seconds, VIDUR_PER_S.get(policy)
    return {
        "fleet": fleet,
        "stage": stage,
        "policy": policy,
        "CPU s": f"{seconds:.2f}",
        "requests/s": f"{per_s:.0f}",
        "Vidur, requests/s": f"{vidur:.0f}" if vidur else "",
        "times Vidur": f"{per_s / vidur:.0f}" if vidur else "",
        "floor": verdict(seconds, FLOORS_S.get(policy)) if stage == "mixed" else "",
        "goal": verdict(seconds, GOALS_S.get(policy)) if stage == "mixed" else "",
    }


def verdict(seconds: float, limit_s: float | None) -> str:
    """A limit and whether it is kept; empty without one."""
    if limit_s is None:
        return ""
    return f"{limit_s:g} s: {'met' if seconds <= limit_s else 'MISSED'}"


def growth(whole: list[SimRequest], base: int, repeats: int, show: Show) -> list[Row]:
    """CPU per request as one of requests, devices (at equal load) and load grows; 4 devices at load 1 otherwise."""
    per_device = saturation_rate(whole[:base], FleetConfig.parse("1xa100-8b"), "timed")
    points = [("requests", f"{n}", n, 4, 1.0) for n in (base // 2, base, 2 * base, 4 * base)]
    points += [("devices", f"{n}", base, n, 1.0) for n in (2, 4, 8, 16)]
    points += [("load", f"{load:g}", base, 4, load) for load in (0.5, 0.9, 1.0, 1.2)]
    rows = []
    for what, value, count, devices, load in points:
        requests = with_rate(whole[:count], devices * load * per_device)
        row = {"grows": what, "to": value}
        for policy in FLOORS_S:
            show(f"{what} {value}, {policy}")
            seconds = cpu_s(requests, f"{devices}xa100-8b", policy, "mixed", repeats)
            row[f"{policy}, ms/request"] = f"{1000 * seconds / count:.3f}"
            row[f"{policy}, requests/s"] = f"{count / seconds:.0f}"
        rows.append(row)
    return rows


def report(trace: str, whole: list[SimRequest], repeats: int, base: int, show: Show) -> str:
    """Both tables with what they were measured on."""
    busy, cores = os.getloadavg()[0], os.cpu_count()
    tables = records_table(speeds(whole, repeats, show)), records_table(growth(whole, base, repeats, show))
    return "\n\n".join(
        [
            "## Speed of the simulator",
            f"Process CPU of the simulation alone, best of {repeats}, {trace} ({len(whole)} requests) at load 1 of the "
            f"fleet and stage; Python {platform.python_version()}, {cores} cores, load average before the run "
            f"{busy:.1f} (`python -m benchmarks.simspeed TRACE.csv --write-page`). Vidur's figures are of runs "
            "of its public code (270 to 330 with either rule) and of the fork of the paper's authors, on one contended "
            "core: 1500 of these requests, 14 per second, four replicas of a 7B model on A100.",
            tables[0],
            f"Growth, mixed stage, devices of kind a100-8b. One column grows; otherwise {base} requests, 4 devices, "
            "load 1 (in units of the saturation rate of one device, times devices).",
            tables[1],
        ]
    )


@click.command()
@click.argument("trace", type=click.Path(exists=True))
@click.option("--repeats", default=5, show_default=True, help="Equal runs; the least CPU counts.")
@click.option("--growth-requests", default=2000, show_default=True, help="Requests where something else grows.")
@click.option("--write-page", is_flag=True, help="Write the tables into docs/results.md.")
def main(trace: str, repeats: int, growth_requests: int, write_page: bool) -> None:
    whole = make_requests(read_trace(trace), parse_predictor("uniform:0.2"), 0, rotate=False)
    text = report(Path(trace).name, whole, repeats, growth_requests, lambda label: click.echo(label, err=True))
    click.echo(text)
    if write_page:
        replace_section("simspeed", text)


if __name__ == "__main__":
    main()
