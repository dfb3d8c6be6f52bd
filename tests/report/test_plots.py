"""Figures come from parquet files alone and are real pictures."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from olp_ray.config import FleetConfig, Mode, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core.types import Request
from olp_ray.report import METRICS
from olp_ray.report.plots import (
    _bound_line,
    _from_zero,
    _policy_bars,
    plot_comparison,
    plot_latency_cdfs,
    plot_timeline,
    scale_latency,
)
from olp_ray.sim import simulate
from olp_ray.workload import SimRequest

PNG = b"\x89PNG"
FLEET = FleetConfig.parse("2xB4M600")


def saved_run(folder: Path) -> None:
    requests = [SimRequest(Request(f"r{i:02d}", 2.0 * i, 20, 30.0), 30) for i in range(30)]
    router = build_priced_router(RouterConfig(policy="round_robin"), FLEET, "period", 0)
    simulate(requests, FLEET, "period", router, update_s=8.0, timeline=True).save(folder)


def test_cdfs_and_timeline(tmp_path: Path) -> None:
    saved_run(tmp_path)
    made = plot_latency_cdfs({"round_robin": tmp_path / "requests.parquet"}, tmp_path / "figures" / "cdf.png")
    assert made.read_bytes().startswith(PNG)
    assert plot_timeline(tmp_path, tmp_path / "timeline.png").read_bytes().startswith(PNG)
    prices = pd.DataFrame({"time_s": [0.0, 8.0], "device_id": "d0", "slot_price": [0.1, 0.2], "kv_price": [0.0, 0.1]})
    prices.to_parquet(tmp_path / "prices.parquet")
    assert plot_timeline(tmp_path, tmp_path / "timeline.png").stat().st_size > 10_000


def test_cdfs_of_requests_that_never_wait(tmp_path: Path) -> None:
    requests = [SimRequest(Request(f"r{i}", 100.0 * i, 20, 30.0), 30) for i in range(5)]
    router = build_priced_router(RouterConfig(policy="round_robin"), FLEET, "period", 0)
    simulate(requests, FLEET, "period", router, update_s=8.0).save(tmp_path)
    assert plot_latency_cdfs({"a": tmp_path / "requests.parquet"}, tmp_path / "cdf.png").exists()


@pytest.mark.parametrize(
    ("smallest", "largest"), [(0.013, 0.08), (0.018, 0.019), (0.02, 6.3), (1.0, 4000.0), (0.001, 90000.0), (0.0, 300.0)]
)
def test_labels_of_latencies_do_not_overlap(smallest: float, largest: float) -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.subplots(1, 2)[0]
    axis.step([smallest, max(smallest, largest / 9), largest], [0, 0.5, 1])
    scale_latency(axis)
    canvas.draw()
    inside = axis.get_window_extent()
    boxes = [label.get_window_extent() for label in axis.get_xticklabels(which="both") if label.get_text()]
    shown = sorted((box for box in boxes if inside.x0 <= (box.x0 + box.x1) / 2 <= inside.x1), key=lambda box: box.x0)
    assert len(shown) >= 2
    assert all(left.x1 < right.x0 for left, right in pairwise(shown))


def test_comparison_bars(tmp_path: Path) -> None:
    runs = pd.DataFrame([{"policy": p, "seed": s, **dict.fromkeys(METRICS, 1.0 + s)} for p in "ab" for s in (0, 1)])
    runs.to_parquet(tmp_path / "results.parquet")
    assert plot_comparison(tmp_path / "results.parquet", tmp_path / "bars.png").read_bytes().startswith(PNG)


def drawn_axis() -> Any:
    return Figure().subplots()


def test_a_policy_that_did_not_serve_all_has_a_star() -> None:
    usual = dict.fromkeys(METRICS, 1.0)
    runs = pd.DataFrame(
        [
            {"policy": "all", "seed": 0, **usual, "requests": 9, "finished": 9},
            {"policy": "some", "seed": 0, **usual, "requests": 9, "finished": 8},
        ]
    )
    axis = drawn_axis()
    notes = _policy_bars(axis, runs, "e2e_mean_s")
    assert sorted(label.get_text() for label in axis.get_yticklabels()) == ["all", "some *"]
    assert [note[0] for note in notes] == ["*"]


@pytest.mark.parametrize(("values", "arrows"), [((5.0, 5.01, 5.02), []), ((1.0, 5.0), ["<", ">"]), ((5.0,), [])])
def test_an_interval_that_is_cut_has_arrows(values: tuple[float, ...], arrows: list[str]) -> None:
    usual = dict.fromkeys(METRICS, 1.0)
    runs = pd.DataFrame([{"policy": "a", "seed": s, **usual, "e2e_mean_s": v} for s, v in enumerate(values)])
    axis = drawn_axis()
    notes = _policy_bars(axis, runs, "e2e_mean_s")
    assert [line.get_marker() for line in axis.lines if line.get_marker() in ("<", ">")] == arrows
    assert bool(notes) == bool(arrows)


def test_the_bound_is_a_line_of_its_own_metric_within_the_axis(tmp_path: Path) -> None:
    axis = drawn_axis()
    axis.set_xlim(0, 10)
    assert "hindsight bound" in _bound_line(axis, 12.0)[0]
    assert axis.lines[-1].get_xdata()[0] == 12.0
    assert axis.get_xlim()[1] > 12.0
    runs = pd.DataFrame([{"policy": "a", "seed": s, **dict.fromkeys(METRICS, 1.0), "bound": 0.9} for s in (0, 1)])
    runs.to_parquet(tmp_path / "r.parquet")
    pictures = [
        plot_comparison(tmp_path / "r.parquet", tmp_path / "p.png", ("e2e_mean_s",), bounded=name).read_bytes()
        for name in (None, "attainment", "e2e_mean_s")
    ]
    assert pictures[0] == pictures[1] != pictures[2]


@pytest.mark.parametrize(("values", "top", "texts"), [((0, 0), 1.0, ["nothing waited"]), ((0, 40), 40.0, [])])
def test_a_panel_without_anything_ends_at_one_and_says_so(
    values: tuple[int, ...], top: float, texts: list[str]
) -> None:
    axis = drawn_axis()
    axis.plot(range(len(values)), values)
    _from_zero(axis, "nothing waited")
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylim()[1] == pytest.approx(top, rel=0.1)
    assert [text.get_text() for text in axis.texts] == texts


def test_a_title_is_drawn(tmp_path: Path) -> None:
    saved_run(tmp_path)
    table = {"a": tmp_path / "requests.parquet"}
    bare, titled = (plot_latency_cdfs(table, tmp_path / "a.png", title=t).read_bytes() for t in (None, "seed 0"))
    assert bare != titled


def test_axes_of_the_period_model_count_periods(tmp_path: Path) -> None:
    """The same tables drawn twice are the same picture, and another one with the other unit."""
    saved_run(tmp_path)
    runs = pd.DataFrame([{"policy": p, "seed": s, **dict.fromkeys(METRICS, 1.0 + s)} for p in "ab" for s in (0, 1)])
    runs.to_parquet(tmp_path / "results.parquet")

    def pictures(mode: Mode) -> list[bytes]:
        made = (
            plot_latency_cdfs({"a": tmp_path / "requests.parquet"}, tmp_path / "a.png", mode),
            plot_timeline(tmp_path, tmp_path / "b.png", mode),
            plot_comparison(tmp_path / "results.parquet", tmp_path / "c.png", ("e2e_mean_s",), mode),
        )
        return [path.read_bytes() for path in made]

    periods = pictures("period")
    assert periods == pictures("period")
    assert all(one != other for one, other in zip(periods, pictures("timed"), strict=True))
