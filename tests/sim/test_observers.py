"""Watching changes nothing: the same run with and without observers."""

from __future__ import annotations

import pandas as pd

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router, build_router
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer
from olp_ray.core.types import Request
from olp_ray.sim import PriceLog, TimedRouter, simulate
from olp_ray.sim.observers import AskedRouter
from olp_ray.workload import SimRequest

FLEET = FleetConfig.parse("2xB4M600")


def test_prices_and_times_are_written_down_and_change_nothing() -> None:
    config = RouterConfig(policy="online_lp")
    requests = [SimRequest(Request(f"r{i:03d}", 3.0 * i, 50, 40.0), 40) for i in range(80)]
    plain = simulate(requests, FLEET, "period", build_priced_router(config, FLEET, "period", 0), update_s=8.0)
    log = PriceLog(InlinePricer())
    timed = TimedRouter(PricedRouter(build_router(config, FLEET, "period", 0), log))
    watched = simulate(requests, FLEET, "period", timed, update_s=8.0)
    pd.testing.assert_frame_equal(plain.requests, watched.requests)
    prices = log.frame()
    assert set(prices["device_id"]) == {"d0", "d1"}
    assert (prices["slot_price"] >= 0).all()
    assert prices["slot_price"].max() > 0
    assert prices.groupby("device_id")["time_s"].apply(lambda times: times.is_monotonic_increasing).all()
    assert len(timed.frame()) == watched.counters.handle_calls
    assert (timed.frame()["wall_s"] > 0).all()


def test_answers_are_of_the_state_after_the_last_call_and_asking_changes_nothing() -> None:
    requests = [SimRequest(Request(f"r{i:02d}", 3.0 * i, 50, 40.0), 40) for i in range(40)]
    config = RouterConfig(policy="central_fifo")
    plain = simulate(requests, FLEET, "period", build_priced_router(config, FLEET, "period", 0), update_s=8.0)
    table = plain.requests.set_index("request_id")
    waited = table[table["start_s"] > table["arrival_s"]].index[0]
    arrival_s, start_s, finish_s = (float(table.loc[waited, c]) for c in ("arrival_s", "start_s", "finish_s"))
    times = [arrival_s, start_s - 0.5, start_s, finish_s - 0.5, finish_s, 1e9]
    asked = AskedRouter(build_priced_router(config, FLEET, "period", 0), [(t, waited) for t in reversed(times)])
    watched = simulate(requests, FLEET, "period", asked, update_s=8.0)
    asked.finish()
    pd.testing.assert_frame_equal(plain.requests, watched.requests)
    states = [(time_s, answer.state) for time_s, answer in asked.answers]
    assert states == list(zip(times[:4], ["waiting", "waiting", "running", "running"], strict=True))
