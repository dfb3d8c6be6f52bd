"""From results.parquet to the front, without Ray."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from olp_ray.errors import ConfigError
from olp_ray.sweep.front import draw_front, read_front
from olp_ray.sweep.results import read_results, write_results

# means over two seeds: trial 0 (2, 5), 1 (3, 6), 2 (4, 5.5): 2 is dominated by 1, 0 and 1 are not
ROWS = [
    {"trial": t, "seed": s, "param.objective.ttft": float(t), "ttft": ttft + s - 0.5, "goodput": goodput}
    for s in (1, 0)
    for t, ttft, goodput in ((2, 4.0, 5.5), (0, 2.0, 5.0), (1, 3.0, 6.0))
]
OBJECTIVES = {"ttft": "min", "goodput": "max"}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "results.parquet"
    write_results(path, ROWS, OBJECTIVES)
    return path


def test_rows_come_back_in_order_with_their_objectives(results: Path) -> None:
    rows, objectives = read_results(results)
    assert rows[["trial", "seed"]].to_numpy().tolist() == [[t, s] for t in range(3) for s in range(2)]
    assert objectives == OBJECTIVES
    assert not results.with_suffix(".partial").exists()


def test_front_is_over_means_of_seeds(results: Path) -> None:
    front = read_front(results)
    assert front.members["trial"].tolist() == [0, 1]
    assert front.members["ttft"].tolist() == [2.0, 3.0]
    assert front.params == ["param.objective.ttft"]
    assert front.hypervolume == pytest.approx((4 - 3) * (6 - 5))  # against the worst of each: (4, 5)


def test_other_objectives_can_be_asked_for(results: Path) -> None:
    assert read_front(results, {"goodput": "max"}).members["trial"].tolist() == [1]


def test_figure_is_drawn(results: Path, tmp_path: Path) -> None:
    path = draw_front(read_front(results), tmp_path / "front.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_figure_of_one_objective(results: Path, tmp_path: Path) -> None:
    assert draw_front(read_front(results, {"ttft": "min"}), tmp_path / "front.png").exists()


def test_unknown_metric(results: Path) -> None:
    with pytest.raises(ConfigError, match=r"no metric 'tftt'; did you mean 'ttft'\? \(valid: goodput, ttft\)"):
        read_front(results, {"tftt": "min"})


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.parquet: no such file"):
        read_front(tmp_path / "none.parquet")


def test_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("hello")
    with pytest.raises(ConfigError, match=r"x\.parquet: not a parquet file"):
        read_front(path)


def test_parquet_of_something_else(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pd.DataFrame({"a": [1]}).to_parquet(path)
    with pytest.raises(ConfigError, match=r"expected the results\.parquet of a sweep, got columns a"):
        read_front(path)
