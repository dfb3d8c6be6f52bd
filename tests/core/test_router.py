import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from olp_ray.core.policies import POLICIES
from olp_ray.core.types import Device
from tests.core.engines import ACTIONS, ALL_MODELS, OFTEN, World

streams = st.lists(st.tuples(st.sampled_from((*OFTEN, *OFTEN, *ACTIONS)), st.integers(0, 999)), min_size=20, max_size=90)


@pytest.fixture(scope="module")
def fleet():
    return [
        Device("a", 3, 200, 1.0, models=ALL_MODELS),
        Device("b", 2, 300, 1.0, block_tokens=16, models=ALL_MODELS),
        Device("c", 4, 150, 1.0, models=frozenset({"m"})),
    ]


@pytest.fixture(scope="module")
def world(fleet, make_settings, make_objective, limits):
    objectives = (
        make_objective(e2e=1, ttft=1),
        make_objective(tail_e2e=1, tail_ttft=1, qps=0.1, t1=30, t2=6),
        make_objective(throughput=1),
    )

    def build(policy, *, objective=None, **options):
        setting = make_settings(objective or objectives[1], **options.pop("settings", {}))
        return World(policy, fleet, setting, options.pop("limits", limits), objectives=objectives, **options)

    return build


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stream=streams, shed=st.booleans())
def test_every_request_ends_exactly_once_whatever_happens(world, policy, stream, shed):
    played = world(policy, settings={"shed": shed})
    for name, n in stream:
        played.act(name, n)
    played.settle()
    assert set(played.ended) == set(played.true_tokens)
