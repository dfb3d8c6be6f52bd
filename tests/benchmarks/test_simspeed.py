"""The tables say what was measured, and miss nothing that was asked for."""

from __future__ import annotations

from benchmarks.simspeed import FLOORS_S, cpu_s, growth, speed_row, verdict
from olp_ray.core.types import Request
from olp_ray.workload import SimRequest


def requests(count: int) -> list[SimRequest]:
    return [SimRequest(Request(f"r{i:03d}", 0.1 * i, 100, 20.0), 20) for i in range(count)]


def test_the_least_of_equal_runs_is_above_zero() -> None:
    assert cpu_s(requests(20), "2xa100-8b", "round_robin", "disaggregated", 2) > 0


def test_a_row_compares_with_limits_and_with_vidur() -> None:
    row = speed_row("4xa100-7b", "mixed", "round_robin", 6000, 1.0)
    assert (row["requests/s"], row["times Vidur"]) == ("6000", "20")
    assert (row["floor"], row["goal"]) == ("2 s: met", "0.7 s: MISSED")
    assert speed_row("4xa100-7b", "mixed", "central_fifo", 6000, 1.0)["times Vidur"] == ""
    assert speed_row("4xa100-7b", "disaggregated", "round_robin", 6000, 1.0)["floor"] == ""


def test_a_limit_is_kept_up_to_itself() -> None:
    assert [verdict(seconds, 2.0) for seconds in (2.0, 2.01)] == ["2 s: met", "2 s: MISSED"]


def test_growth_grows_requests_devices_and_load() -> None:
    asked: list[str] = []
    rows = growth(requests(40), 10, 1, asked.append)
    assert [row["grows"] for row in rows] == ["requests"] * 4 + ["devices"] * 4 + ["load"] * 4
    assert len(asked) == len(rows) * len(FLOORS_S)
