"""What is turned away whatever the policy: through the router in test_router.py, and alone here."""

from olp_ray.config.router import RouterConfig
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.refusals import Refusals
from olp_ray.core.types import RejectReason


def test_what_the_largest_device_holds_is_looked_up_again_when_told_so(make_request, make_device):
    refusals = Refusals(RouterConfig().limits())
    small, large = make_device(kv_tokens=100, block_tokens=16), make_device("g1", kv_tokens=200, block_tokens=16)
    fits, more = make_request(prompt_tokens=84), make_request(prompt_tokens=85)
    assert refusals.never(fits, [small]) is None
    assert refusals.never(more, [small]).reason is RejectReason.NEVER_FITS
    assert refusals.never(more, [small, large]).reason is RejectReason.NEVER_FITS  # as it was
    refusals.forget()
    assert refusals.never(more, [small, large]) is None
    refusals.forget()
    assert refusals.never(fits, []).reason is RejectReason.NO_DEVICE


def test_a_prediction_is_at_most_what_the_largest_device_that_runs_the_request_holds(make_request, make_device):
    refusals = Refusals(RouterConfig().limits())
    devices = [
        make_device(kv_tokens=100, models=frozenset({"m"})),
        make_device("g1", kv_tokens=200, models=frozenset({"n"})),
    ]
    for model, predicted, bounded in (("m", 100.0, 100.0), ("m", 1e160, 100.0), ("n", 1e300, 200.0), ("n", 7.5, 7.5)):
        request = make_request(model=model, predicted=predicted)
        found = refusals.bounded(request, devices)
        assert (found.key, found.predicted_output_tokens) == (request.key, bounded)


def test_lowest_priority_then_newest_is_beyond_the_queue(make_request):
    queue = WaitingQueue()
    for at, (name, priority) in enumerate((("a", 0), ("b", 1), ("c", 0), ("d", 0))):
        queue.add(make_request(name, arrival_s=float(at), priority=priority), 0)
    dropped = Refusals(RouterConfig(queue_size=2).limits()).overflow(queue)
    assert [(one.request.id, one.knob) for one in dropped] == [("c", "queue_size"), ("d", "queue_size")]
    assert Refusals(RouterConfig(queue_size=4).limits()).overflow(queue) == []
    assert len(queue) == 4
