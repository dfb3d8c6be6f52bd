"""A request that is given up in prefill takes its share of the device's prefill backlog with it."""

import pytest

from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_router
from olp_ray.core.types import Arrived, Assign, Cancelled, ReplicaRefused, Request


@pytest.mark.parametrize("refused", [False, True], ids=["cancelled", "refused"])
def test_the_device_is_free_for_the_next_request_at_once(refused):
    router = build_router(RouterConfig(policy="central_fifo"), FleetConfig.parse("1xa100-8b"), "timed", seed=0)
    [assign] = router.handle(0.0, [Arrived(Request("long", 0.0, 200_000, 10.0))]).decisions
    assert router.ledger.prefill.backlog(0.1)[0] > 190_000
    gone = [Cancelled(assign.request.key)]
    if refused:
        gone = [ReplicaRefused(assign.key, "busy"), *gone]
    router.handle(0.1, gone)
    assert router.ledger.prefill.backlog(0.1)[0] == 0
    [next_one] = router.handle(0.2, [Arrived(Request("short", 0.2, 10, 10.0))]).decisions
    assert isinstance(next_one, Assign)
    router.check_invariants()
