"""The event loop: the period model's arithmetic, statuses, order of events, and what a bad router gets told."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.config.sim import FailureConfig, SimConfig
from olp_ray.core.types import Arrived, Assign, AssignmentKey, Event, Reject, RejectReason, Request, Started, Step
from olp_ray.errors import PriceError, SimulationError, WorkloadError
from olp_ray.sim import Result, fleet_engines, saturation_rate, simulate
from olp_ray.sim.run import Simulation
from olp_ray.workload import SimRequest

ONE = FleetConfig.parse("1xB2M1000")


def request(name: str, arrival_s: float, prompt: int, output: int) -> SimRequest:
    return SimRequest(Request(name, arrival_s, prompt, float(output)), output)


class ToFirst:
    """Assigns every arrival to d0 at once."""

    def handle(self, now_s: float, events: Sequence[Event]) -> Step:
        arrived = [event.request for event in events if isinstance(event, Arrived)]
        return Step(tuple(Assign(AssignmentKey(r.id, r.stage, "d0", 0, 0), r) for r in arrived))


def routed(requests: list[SimRequest], fleet: FleetConfig, policy: str, mode: str = "timed") -> Result:
    config = RouterConfig(policy=policy)
    router = build_priced_router(config, fleet, mode, 0)
    result = simulate(requests, fleet, mode, router, update_s=config.settings(mode).online_lp.update_s)
    router.router.check_invariants()
    return result


def test_period_model_by_hand() -> None:
    requests = [request("a", 0.0, 10, 3), request("b", 0.4, 10, 2), request("c", 0.5, 10, 4)]
    table = simulate(requests, ONE, "period", ToFirst(), update_s=8.0).requests
    assert table["arrival_s"].tolist() == [0, 1, 1]  # whole periods
    assert table["start_s"].tolist() == [0, 1, 3]  # two slots: c waits for a and b
    assert table["first_token_s"].tolist() == [0, 1, 3]
    assert table["finish_s"].tolist() == [3, 3, 7]  # start + output


def test_period_model_holds_kv_of_prompt_plus_decoded_plus_one() -> None:
    fleet = FleetConfig.parse("1xB8M36")
    requests = [request("a", 0.0, 10, 7), request("b", 0.0, 10, 7), request("c", 2.0, 1, 1)]
    table = simulate(requests, fleet, "period", ToFirst(), update_s=8.0).requests
    # a and b hold 11 each in period 0 and 17 each in period 6; c needs 2 and 14 + 14 + 2 < 36 when it comes
    assert table["finish_s"].tolist() == [7, 7, 3]
    assert table["preemptions"].sum() == 0
    tight = FleetConfig.parse("1xB8M33")
    assert simulate(requests[:2], tight, "period", ToFirst(), update_s=8.0).requests["preemptions"].tolist() == [0, 1]


@pytest.mark.parametrize("policy", ["round_robin", "least_outstanding", "central_fifo", "online_lp"])
@pytest.mark.parametrize("mode", ["timed", "period"])
def test_every_policy_drains(policy: str, mode: str) -> None:
    fleet = FleetConfig.parse("2xa100-7b") if mode == "timed" else FleetConfig.parse("2xB8M3000")
    requests = [request(f"r{i:03d}", 0.05 * i if mode == "timed" else i, 100 + i, 20 + i) for i in range(60)]
    result = routed(requests, fleet, policy, mode)
    assert (result.requests["status"] == "finished").all()
    assert (result.requests["generated_tokens"] == result.requests["output_tokens"]).all()
    assert len(result.decisions) == 60
    times = result.requests[["arrival_s", "assigned_s", "start_s", "first_token_s", "finish_s"]].to_numpy()
    assert (times[:, 1:] >= times[:, :-1]).all()


def test_equal_seeds_give_equal_tables() -> None:
    fleet = FleetConfig.parse("2xa100-8b")
    requests = [request(f"r{i:03d}", 0.02 * i, 300, 50 + i) for i in range(80)]
    first, second = (routed(requests, fleet, "online_lp") for _ in range(2))
    pd.testing.assert_frame_equal(first.requests, second.requests)
    pd.testing.assert_frame_equal(first.decisions, second.decisions)


def test_horizon_leaves_started_and_waiting_requests_as_such() -> None:
    requests = [
        request("a", 0.0, 10, 100),
        request("b", 0.0, 10, 100),
        request("c", 0.0, 10, 5),
        request("d", 99.0, 1, 1),
    ]
    result = simulate(requests, ONE, "period", ToFirst(), update_s=8.0, sim=SimConfig(horizon_s=50.0))
    assert result.requests["status"].tolist() == ["unfinished", "unfinished", "never_started"]  # d never arrived
    assert math.isnan(result.requests["start_s"][2])


def test_a_rejection_ends_the_request() -> None:
    class Refuses:
        def handle(self, now_s: float, events: Sequence[Event]) -> Step:
            arrived = [event.request for event in events if isinstance(event, Arrived)]
            return Step(tuple(Reject(r, RejectReason.PRICE, "price", "max_wait_s", 3.0) for r in arrived))

    result = simulate([request("a", 0.0, 1, 1)], ONE, "period", Refuses(), update_s=8.0)
    assert result.requests["status"].tolist() == ["rejected"]
    assert result.requests["reject_reason"].tolist() == ["price"]
    assert result.decisions.loc[0, ["decision", "knob", "retry_after_s"]].tolist() == ["reject", "max_wait_s", 3.0]


def test_started_is_told_at_the_time_of_the_assignment() -> None:
    seen: list[tuple[float, type]] = []

    class Watches(ToFirst):
        def handle(self, now_s: float, events: Sequence[Event]) -> Step:
            seen.extend((now_s, type(event)) for event in events)
            return super().handle(now_s, events)

    simulate([request("a", 2.0, 1, 1)], ONE, "period", Watches(), update_s=8.0)
    assert seen[:2] == [(2.0, Arrived), (2.0, Started)]


def test_a_router_that_wakes_in_vain_is_given_up() -> None:
    class Sleeps:
        def handle(self, now_s: float, events: Sequence[Event]) -> Step:
            return Step(next_wake_s=now_s + 1)

    result = simulate([request("a", 0.0, 1, 1)], ONE, "period", Sleeps(), update_s=math.inf)
    assert result.requests["status"].tolist() == ["never_started"]


def test_a_wake_that_is_not_later_is_an_error() -> None:
    class Stuck:
        def handle(self, now_s: float, events: Sequence[Event]) -> Step:
            return Step(next_wake_s=now_s)

    with pytest.raises(SimulationError, match="not after 0"):
        simulate([request("a", 0.0, 1, 1)], ONE, "period", Stuck(), update_s=8.0)


def test_an_unknown_device_is_an_error() -> None:
    class Lost(ToFirst):
        def handle(self, now_s: float, events: Sequence[Event]) -> Step:
            r = request("a", 0.0, 1, 1).request
            return Step((Assign(AssignmentKey("a", r.stage, "d7", 0, 0), r),))

    with pytest.raises(SimulationError, match=r"'d7'; devices: \['d0'\]"):
        simulate([request("a", 0.0, 1, 1)], ONE, "period", Lost(), update_s=8.0)


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        ([request("a", 0.0, 1, 1), request("a", 1.0, 1, 1)], "not unique"),
        ([request("a", -1.0, 1, 1)], "arrival_s is -1"),
        ([SimRequest(Request("a", 0.0, 1, 1.0), 0)], "output_tokens is 0"),
    ],
)
def test_bad_requests_are_errors(requests: list[SimRequest], text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        simulate(requests, ONE, "period", ToFirst(), update_s=8.0)


def test_saturation_rate_in_closed_form() -> None:
    requests = [request(f"r{i}", float(i), 10, 25) for i in range(8)]
    assert saturation_rate(requests, ONE, "period") == 8 / 100  # two at a time, four rounds of 25 periods


def test_saturation_is_without_the_drain() -> None:
    requests = [request(f"r{i}", 0.0, 10, tokens) for i, tokens in enumerate((10, 10, 10, 90))]
    # two slots, twice 2 to fill: 10 and 10 in 0..10, then 10 and 90 from 10 on: the last starts at 10, with 2 served
    assert saturation_rate(requests, ONE, "period") == 2 / 10


def test_saturation_knows_the_stage_and_no_failures() -> None:
    fleet = FleetConfig.parse("1xa100-8b")
    requests = [request(f"r{i}", 0.0, 2000, 100) for i in range(300)]
    mixed = saturation_rate(requests, fleet, "timed")
    failing = SimConfig(failures=(FailureConfig(device="d0", at_s=1.0),), speed_jitter=0.5)
    assert saturation_rate(requests, fleet, "timed", failing) == mixed
    assert saturation_rate(requests, fleet, "timed", SimConfig(stage="disaggregated")) > 1.5 * mixed


def test_progress_is_told_and_stepping_from_outside_gives_the_same() -> None:
    requests = [request(f"r{i}", float(i), 10, 5) for i in range(6)]
    told: list[tuple[int, int]] = []
    whole = simulate(requests, ONE, "period", ToFirst(), update_s=8.0, progress=lambda *pair: told.append(pair))
    assert told[-1] == (6, 6)
    simulation = Simulation(requests, fleet_engines(ONE, "period"), ToFirst(), period=True, update_s=8.0)
    while simulation.step():
        pass
    pd.testing.assert_frame_equal(simulation.result().requests, whole.requests)


def test_timeline_samples_every_device() -> None:
    requests = [request(f"r{i}", 0.0, 10, 30) for i in range(3)]
    timeline = simulate(requests, ONE, "period", ToFirst(), update_s=8.0, timeline=True).timeline
    assert timeline is not None
    assert timeline["running"].tolist()[:3] == [2, 2, 2]
    assert timeline["queued"].tolist()[:3] == [1, 1, 1]
    assert timeline["kv_tokens"].tolist()[:2] == [36, 52]  # two requests of 10 + theta


def test_a_price_update_that_fails_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = FleetConfig.parse("2xa100-7b")
    router = build_priced_router(RouterConfig(), fleet, "timed", 0)

    def fail(work: object) -> None:
        raise OverflowError("too large")

    monkeypatch.setattr(router.pricer, "submit", fail)
    requests = [request(f"r{i:03d}", 0.1 * i, 100, 20) for i in range(60)]
    with pytest.raises(PriceError, match=r"price update \d+ failed: OverflowError: too large"):
        simulate(requests, fleet, "timed", router, update_s=1.0)
