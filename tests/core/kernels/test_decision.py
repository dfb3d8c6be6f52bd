"""What crosses into the decision kernel comes out as it went in."""

import pytest

from olp_ray.config import PRESETS, RouterConfig
from olp_ray.core.kernels import decision
from olp_ray.core.policies import build_policy


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("mode", ["period", "timed"])
def test_rules_come_back_from_their_numbers(preset, mode):
    policy = build_policy("online_lp", RouterConfig().with_policy(f"online_lp:{preset}").settings(mode))
    assert decision.rules_of(policy._rule_numbers) == policy._rules
