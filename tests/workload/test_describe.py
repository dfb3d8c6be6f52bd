"""Numbers of a trace by hand, and the common CSV there and back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from olp_ray.report.workload_plot import plot_workload
from olp_ray.workload.describe import describe, write_common
from olp_ray.workload.generators import generate
from olp_ray.workload.traces import read_trace


def table(times: list[float]) -> pd.DataFrame:
    n = len(times)
    return pd.DataFrame(
        {"arrived_at": times, "num_prefill_tokens": np.arange(n) * 10, "num_decode_tokens": np.full(n, 7)}
    )


def test_even_arrivals() -> None:
    found = describe(table([0.0, 1.0, 2.0, 3.0, 4.0]))
    assert (found.requests, found.span_s, found.rate_per_s, found.gap_variation) == (5, 4.0, 1.0, 0.0)
    assert (found.prompt_tokens.mean, found.prompt_tokens.quantiles[0], found.prompt_tokens.largest) == (20, 20, 40)
    assert found.output_tokens == (7, (7, 7, 7), 7)
    assert found.extras == {}


def test_poisson_arrivals_have_variation_one() -> None:
    assert describe(generate("lmsys", 20_000, 5.0, seed=0)).gap_variation == pytest.approx(1.0, abs=0.03)


def test_all_at_once() -> None:
    found = describe(table([0.0, 0.0]))
    assert math.isnan(found.rate_per_s)
    assert found.peak_to_mean == 1.0


def test_extras_are_counted() -> None:
    assert describe(table([0.0, 1.0, 2.0]).assign(tenant=["a", "b", "a"])).extras == {"tenant": 2}


def test_common_csv_there_and_back(tmp_path: Path) -> None:
    frame = table([0.0, 1.5, 2.0]).assign(tenant=["a", "b", "a"], prefix_blocks=[(1, 2), (), (3,)], priority=[0, 1, 2])
    write_common(frame, tmp_path / "t.csv")
    back = read_trace(tmp_path / "t.csv")
    assert back[frame.columns.tolist()].equals(frame)


def test_a_file_without_arrival_times_has_no_numbers_about_time(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("num_prefill_tokens,num_decode_tokens\n10,5\n20,6\n30,7\n")
    found = describe(read_trace(file))
    assert not found.timed
    assert all(map(math.isnan, (found.span_s, found.rate_per_s, found.gap_variation, found.peak_to_mean)))
    assert found.prompt_tokens.mean == 20
    assert plot_workload(read_trace(file), tmp_path / "w.png", timed=found.timed).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("times", "expected"), [((0, 1, 1), False), ((1, 0, 2), True)])
def test_a_trace_out_of_order_is_told(tmp_path: Path, times: tuple[int, ...], expected: bool) -> None:
    file = tmp_path / "t.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{t},10,5\n" for t in times))
    found = describe(read_trace(file))
    assert (found.timed, found.sorted_on_reading) == (True, expected)


def test_figure(tmp_path: Path) -> None:
    assert plot_workload(table([0.0, 1.0, 2.0]), tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")
