"""Tenant shares against their closed forms: x^-a of what was served, forgotten by half-lives, within limits."""

import pytest

from olp_ray.core.fairness import LIMIT, TenantShares


def served(**tokens):
    shares = TenantShares(half_life_s=10.0)
    for tenant, amount in tokens.items():
        shares.served(tenant, amount, 0.0)
    return shares


def test_before_any_service_all_count_the_same():
    assert TenantShares(10.0).weights(["a", "b", "a"], 1.0, 5.0).tolist() == [1, 1, 1]


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_weight_is_the_share_of_the_mean_to_the_minus_exponent(exponent):
    weights = served(a=300.0, b=100.0, c=200.0).weights(["a", "b", "c"], exponent, 0.0)
    assert weights.tolist() == pytest.approx([1.5**-exponent, 0.5**-exponent, 1.0])


def test_a_new_tenant_lowers_the_mean_and_counts_at_most_the_limit():
    weights = served(a=300.0).weights(["a", "new"], 1.0, 0.0)
    assert weights.tolist() == pytest.approx([0.5, LIMIT])
    many = served(**{f"t{i}": 1.0 for i in range(40)}, big=1e6)
    assert many.weights(["big", "t0"], 1.0, 0.0).tolist() == pytest.approx([1 / LIMIT, LIMIT])


def test_service_is_forgotten_by_half_lives_and_order_is_kept():
    shares = served(a=400.0)
    shares.served("b", 100.0, 20.0)
    assert shares.weights(["a", "b"], 1.0, 20.0).tolist() == pytest.approx([1.0, 1.0])
    assert shares.weights(["a", "b"], 1.0, 20.0 + 10 * 30).tolist() == [1.0, 1.0]
    shares.forget(20.0 + 10 * 30)
    assert shares.snapshot()["tokens"] == {}


def test_a_question_forgets_nothing_and_says_what_holds_once_time_has_passed():
    asked, plain = served(a=300.0, b=100.0), served(a=300.0, b=100.0)
    asked.served("b", 70.0, 4.0)
    plain.served("b", 70.0, 4.0)
    told = asked.weights(["a", "b", "c"], 1.0, 7.3).tolist()
    asked.weights(["a", "b"], 1.0, 1e5)
    assert asked.snapshot() == plain.snapshot()
    asked.forget(7.3)
    assert asked.weights(["a", "b", "c"], 1.0, 7.3).tolist() == told


def test_scaling_all_service_changes_no_weight():
    one, other = served(a=3.0, b=1.0), served(a=3000.0, b=1000.0)
    assert one.weights(["a", "b"], 1.0, 0.0).tolist() == pytest.approx(other.weights(["a", "b"], 1.0, 0.0).tolist())


def test_snapshot_comes_back():
    shares, other = served(a=3.0, b=1.0), TenantShares(10.0)
    other.restore(shares.snapshot())
    assert other.weights(["a", "b"], 1.0, 7.0).tolist() == shares.weights(["a", "b"], 1.0, 7.0).tolist()
