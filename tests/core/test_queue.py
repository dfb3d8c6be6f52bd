import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from olp_ray.core.kernels.records import CAME_BACK
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.types import Request, RequestKey, Stage
from olp_ray.errors import EventError

move = st.tuples(st.sampled_from(["add", "add", "remove"]), st.integers(0, 9), st.integers(0, 999))


def columns(queue):
    names = ("arrival_s", "prompt_tokens", "predicted_output_tokens", "priority")
    return [getattr(queue, name).tolist() for name in names]


@settings(max_examples=40, deadline=None)
@given(moves=st.lists(move, max_size=90))
def test_order_and_columns_agree_with_a_sorted_list(moves):
    queue, plain = WaitingQueue(), []
    for name, arrival_s, n in moves:
        request = Request(f"r{n % 40}", float(arrival_s), n, 1.0 + n % 7, stage=list(Stage)[n % 3], priority=n % 5)
        if name == "add" and request.key not in {r.key for r in plain}:
            queue.add(request, attempt=n)
            plain.append(request)
        elif name == "remove" and plain:
            taken = plain.pop(n % len(plain))
            assert queue.remove(taken).request is taken
        plain.sort(key=lambda r: (r.arrival_s, r.id, r.stage))
        assert [entry.request for entry in queue] == plain
        assert columns(queue) == [
            [getattr(r, column) for r in plain]
            for column in ("arrival_s", "prompt_tokens", "predicted_output_tokens", "priority")
        ]
        assert len(queue) == len(plain)
        assert bool(queue) == bool(plain)


def test_it_grows_beyond_its_first_columns():
    queue = WaitingQueue()
    for i in range(300):
        queue.add(Request(f"r{i:03}", float(-i), i, 1.0), 0)
    assert queue.prompt_tokens.tolist() == list(range(299, -1, -1))


def test_own_thresholds_are_nan_where_there_are_none():
    queue = WaitingQueue()
    queue.add(Request("a", 0.0, 1, 1.0, slo_ttft_s=2.0), 0)
    queue.add(Request("b", 1.0, 1, 1.0, slo_e2e_s=9.0), 0)
    assert np.array_equal(queue.slo_ttft_s, [2.0, np.nan], equal_nan=True)
    assert np.array_equal(queue.slo_e2e_s, [np.nan, 9.0], equal_nan=True)


def test_find_by_key_keeps_the_attempt():
    queue, request = WaitingQueue(), Request("a", 0.0, 1, 1.0)
    queue.add(request, 3)
    assert queue.find(request.key).attempt == 3
    assert queue.find(RequestKey("a", Stage.DECODE)) is None
    assert request.key in queue


def test_a_key_waits_once():
    queue, request = WaitingQueue(), Request("a", 0.0, 1, 1.0)
    queue.add(request, 0)
    with pytest.raises(EventError, match="already waits"):
        queue.add(Request("a", 5.0, 2, 2.0), 1)
    queue.add(Request("a", 5.0, 2, 2.0, stage=Stage.DECODE), 0)
    assert len(queue) == 2
    queue.remove(request)
    with pytest.raises(EventError, match="does not wait"):
        queue.remove(request)


def test_columns_can_not_be_written():
    queue = WaitingQueue()
    queue.add(Request("a", 0.0, 1, 1.0), 0)
    with pytest.raises(ValueError, match="read-only"):
        queue.arrival_s[0] = 3.0


def test_what_came_back_is_marked_until_a_decision_was_made(make_request):
    queue = WaitingQueue()
    queue.add(make_request("b", 2.0), 0)
    queue.add(make_request("d", 4.0), 1, came_back=True)
    assert queue.columns[CAME_BACK, :2].tolist() == [0, 1]
    queue.add(make_request("a", 1.0), 1, came_back=True)
    queue.add(make_request("c", 3.0), 0)
    assert queue.columns[CAME_BACK, :4].tolist() == [1, 0, 0, 1]
    queue.remove(make_request("a", 1.0))
    queue.add(make_request("a", 1.0), 0)
    assert queue.columns[CAME_BACK, :4].tolist() == [0, 0, 0, 1]
    queue.add(make_request("e", 5.0), 1, came_back=True)
    queue.settle()
    assert queue.columns[CAME_BACK, :5].tolist() == [0] * 5
