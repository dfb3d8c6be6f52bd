"""From a table to requests: ids, offset, cut, rate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from olp_ray.config.workload import ArrivalsConfig
from olp_ray.errors import WorkloadError
from olp_ray.workload import make_requests, parse_predictor, with_rate
from olp_ray.workload.requests import rescaled, rotated

PERFECT = parse_predictor("perfect")
FRAME = pd.DataFrame(
    {"arrived_at": [0.0, 1.0, 3.0, 6.0], "num_prefill_tokens": [1, 2, 3, 4], "num_decode_tokens": [5, 6, 7, 8]}
)


def test_rotation_goes_round_with_one_mean_gap() -> None:
    turned = rotated(FRAME, 2)
    assert turned["arrived_at"].tolist() == [0.0, 3.0, 5.0, 6.0]
    assert turned["num_prefill_tokens"].tolist() == [3, 4, 1, 2]


@given(
    gaps=st.lists(st.floats(0.01, 100), min_size=2, max_size=30),
    start=st.integers(0, 29),
    rate=st.floats(0.01, 100),
)
def test_rotation_and_rescaling_keep_order_requests_and_rate(gaps: list[float], start: int, rate: float) -> None:
    times = np.cumsum(gaps)
    frame = pd.DataFrame({"arrived_at": times, "num_prefill_tokens": range(len(times)), "num_decode_tokens": 1})
    turned = rescaled(rotated(frame, start % len(times)), rate)
    assert (np.diff(turned["arrived_at"]) >= 0).all()
    assert sorted(turned["num_prefill_tokens"]) == list(range(len(times)))
    assert (len(times) - 1) / (turned["arrived_at"].iloc[-1] - turned["arrived_at"].iloc[0]) == pytest.approx(rate)


def test_a_seed_sets_the_offset_and_the_errors() -> None:
    starts = {make_requests(FRAME, PERFECT, seed)[0].request.prompt_tokens for seed in range(30)}
    assert starts == {1, 2, 3, 4}
    noisy = parse_predictor("uniform:0.5")
    assert make_requests(FRAME, noisy, 4) == make_requests(FRAME, noisy, 4)


def test_count_keeps_the_first_from_the_offset_and_rate_rescales_them() -> None:
    made = make_requests(FRAME, PERFECT, 0, count=3, rate=4.0, rotate=False)
    assert [r.output_tokens for r in made] == [5, 6, 7]
    assert made[-1].request.arrival_s == pytest.approx(0.5)


def test_string_order_of_ids_is_order_of_arrival() -> None:
    frame = pd.DataFrame({"arrived_at": np.arange(1200.0), "num_prefill_tokens": 1, "num_decode_tokens": 1})
    ids = [r.request.id for r in make_requests(frame, PERFECT, 0)]
    assert ids == sorted(ids)


def test_extras_reach_the_request() -> None:
    frame = FRAME.assign(tenant=list("abcd"), priority=[0, 1, 2, 3], prefix_blocks=[(1,), (2,), (), (4, 5)])
    last = make_requests(frame, PERFECT, 0, rotate=False)[-1].request
    assert (last.tenant, last.priority, last.prefix_blocks) == ("d", 3, (4, 5))


def test_with_rate_rescales_made_requests() -> None:
    made = with_rate(make_requests(FRAME, PERFECT, 0, rotate=False), 1.0)
    assert [r.request.arrival_s for r in made] == pytest.approx([0.0, 0.5, 1.5, 3.0])


def test_requests_at_one_time_have_no_rate() -> None:
    with pytest.raises(WorkloadError, match="can not be rescaled"):
        rescaled(FRAME.assign(arrived_at=0.0), 1.0)


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("predictor", ["perfect", "mean", "class_mean", "online"])
def test_an_empty_workload_is_an_error(rotate: bool, predictor: str) -> None:
    with pytest.raises(WorkloadError, match=r"the workload is empty; expected at least one request"):
        make_requests(FRAME.head(0), parse_predictor(predictor), 0, rotate=rotate)


def test_a_trace_gets_new_arrivals_and_keeps_its_lengths() -> None:
    batches = pd.DataFrame(  # as Mooncake has them: many at once
        {"arrived_at": np.repeat(np.arange(500) * 3.0, 4), "num_prefill_tokens": range(2000), "num_decode_tokens": 5}
    )
    made = make_requests(batches, PERFECT, 0, rotate=False, arrivals=ArrivalsConfig.parse("poisson"))
    gaps = np.diff([r.request.arrival_s for r in made])
    assert gaps.mean() == pytest.approx(0.75, rel=0.1)  # its own rate
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)
    assert [r.request.prompt_tokens for r in made] == list(range(2000))
    faster = make_requests(batches, PERFECT, 0, rotate=False, rate=8.0, arrivals=ArrivalsConfig.parse("gamma:3"))
    assert np.diff([r.request.arrival_s for r in faster]).mean() == pytest.approx(1 / 8)
    stated = make_requests(batches, PERFECT, 0, arrivals=ArrivalsConfig.parse("rates:1@0,4@500"))
    times = np.array([r.request.arrival_s for r in stated])
    assert (times < 500).sum() == pytest.approx(500, abs=90)
