"""From config to router."""

from __future__ import annotations

import pytest

from olp_ray.config import FleetConfig, RouterConfig, validate
from olp_ray.config.build import build_priced_router, build_router
from olp_ray.core.types import Arrived, Assign, Request
from olp_ray.errors import OlpRayError


@pytest.mark.parametrize("mode", ["timed", "period"])
@pytest.mark.parametrize("policy", ["round_robin", "online_lp:e2e"])
def test_the_router_routes(mode: str, policy: str) -> None:
    config = RouterConfig().with_policy(policy)
    router = build_priced_router(config, FleetConfig.parse("2xa100-8b"), mode, seed=0)  # type: ignore[arg-type]
    step = router.handle(0.0, [Arrived(Request("r0", 0.0, 10, 10.0))])
    assert [type(d) for d in step.decisions] == [Assign]
    router.router.check_invariants()


def test_unknown_policy_in_a_file() -> None:
    with pytest.raises(OlpRayError, match="did you mean 'online_lp'"):
        validate({"policy": "onlinelp"}, RouterConfig, "f.yaml")
    config = RouterConfig().model_copy(update={"policy": "onlinelp"})
    with pytest.raises(OlpRayError, match="did you mean 'online_lp'"):
        build_router(config, FleetConfig.parse("a100-8b"), "timed", seed=0)
