"""Objectives, presets and the constants derived from thresholds."""

from __future__ import annotations

import pytest

from olp_ray.config import DEFAULT_THRESHOLDS, PRESETS, RouterConfig, validate
from olp_ray.errors import ConfigError


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("mode", ["timed", "period"])
def test_every_preset_gives_settings(preset: str, mode: str) -> None:
    settings = RouterConfig(preset=preset).settings(mode)  # type: ignore[arg-type]
    assert settings.objective.weights == PRESETS[preset].weights
    assert settings.rejects == PRESETS[preset].rejects
    ratio = settings.online_lp.bucket_s / settings.online_lp.update_s
    assert ratio == pytest.approx(round(ratio))


def test_period_mode_has_the_measured_constants() -> None:
    lp = RouterConfig().settings("period").online_lp
    assert (lp.bucket_s, lp.horizon_s, lp.lookahead_s, lp.update_s, lp.urgency_s) == (16, 2048, 1024, 8, 10)


def test_seconds_follow_from_the_thresholds() -> None:
    config = validate({"objective": {"ttft_threshold_s": 3, "e2e_threshold_s": 30}}, RouterConfig, "f")
    lp = config.settings("timed").online_lp
    assert (lp.bucket_s, lp.lookahead_s, lp.horizon_s) == (1.0, 60, 120)
    assert lp.urgency_s == pytest.approx(0.6)


def test_a_deadline_counts_from_further_ahead_where_nothing_else_has_weight() -> None:
    settings = {name: RouterConfig(preset=name).settings("timed").online_lp for name in PRESETS}
    assert {name: settings[name].urgency_s for name in ("attainment", "p95_ttft", "balanced")} == {
        "attainment": 1.0,
        "p95_ttft": 1.0,
        "balanced": 0.4,
    }


def test_only_the_95th_percentile_looks_further_while_few_are_late() -> None:
    for mode, calm_s in (("timed", 8.0), ("period", 196.0)):
        settings = {name: RouterConfig(preset=name).settings(mode).online_lp for name in PRESETS}  # type: ignore[arg-type]
        calm = settings.pop("p95_ttft")
        assert (calm.calm_urgency_s, calm.calm_late_requests) == pytest.approx((calm_s, 0.05 * 512))
        assert all(lp.calm_urgency_s == lp.urgency_s for lp in settings.values())


def test_what_is_given_wins_over_preset_and_ratio() -> None:
    data = {"preset": "e2e", "objective": {"qps": 0.5}, "rejects": "deadline", "online_lp": {"bucket_s": 2.0}}
    settings = validate(data, RouterConfig, "f").settings("timed")
    assert settings.objective.weights == (0, 1, 1, 0.5, 0, 0)
    assert (settings.online_lp.bucket_s, settings.online_lp.update_s, settings.rejects) == (2.0, 1.0, "deadline")


def test_thresholds_default_by_mode() -> None:
    objective = RouterConfig().core_objective("period")
    assert (objective.e2e_threshold_s, objective.ttft_threshold_s) == DEFAULT_THRESHOLDS["period"]


def test_unknown_preset_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"preset 'attanment' is unknown; did you mean 'attainment'\?"):
        validate({"preset": "attanment"}, RouterConfig, "f")


@pytest.mark.parametrize("factor", [0.06, 16.1, 1e9])
def test_a_priority_factor_whose_power_is_no_number_is_refused(factor: float) -> None:
    with pytest.raises(ConfigError, match=r"objective\.priority_factor: .*0\.0625|objective\.priority_factor: .*16"):
        validate({"objective": {"priority_factor": factor}}, RouterConfig, "f")


def test_policy_text_sets_name_and_preset() -> None:
    config = RouterConfig(preset="balanced")
    assert config.with_policy("online_lp:e2e").preset == "e2e"
    assert config.with_policy("round_robin").preset == "balanced"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("round_robbin", r"policy 'round_robbin' is unknown; did you mean 'round_robin'\? \(valid: "),
        ("online_lp:tfft", "preset 'tfft' is unknown"),
    ],
)
def test_unknown_policy_names_the_nearest(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        RouterConfig().with_policy(text)


@pytest.mark.parametrize(
    "data",
    [{"objective": {"ttft": -1}}, {"objective": {"ttft": float("nan")}}, {"online_lp": {"guard": 1.5}},
     {"online_lp": {"learning_rate": 0}}, {"queue_size": 0}],
)  # fmt: skip
def test_numbers_outside_their_domain_are_refused(data: dict) -> None:
    with pytest.raises(ConfigError):
        validate(data, RouterConfig, "f")


@pytest.mark.parametrize("value", [0, -1, 1e-9, float("nan"), float("inf")])
def test_a_regular_price_that_makes_no_finite_key_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match=r"online_lp\.regular_price: .*, got"):
        validate({"online_lp": {"regular_price": value}}, RouterConfig, "f")


def test_a_policy_with_its_preset_in_one_key_is_told_of_the_other_key() -> None:
    with pytest.raises(ConfigError, match=r"f\.yaml: policy: .*policy: online_lp, preset: e2e, got 'online_lp:e2e'"):
        validate({"policy": "online_lp:e2e"}, RouterConfig, "f.yaml")
    with pytest.raises(ConfigError, match=r"f\.yaml: policy: policy 'online_pl' is unknown; did you mean 'online_lp'"):
        validate({"policy": "online_pl"}, RouterConfig, "f.yaml")


def test_weights_that_are_all_zero_name_file_key_and_preset() -> None:
    none = {"objective": {"e2e": 0, "ttft": 0}}
    with pytest.raises(ConfigError, match=r"f\.yaml: .*`objective` over preset 'e2e': objective weights are all zero"):
        validate({"preset": "e2e", **none}, RouterConfig, "f.yaml")
    config = validate(none, RouterConfig, "f.yaml")
    with pytest.raises(ConfigError, match="`objective` over preset 'e2e': objective weights are all zero"):
        config.with_policy("online_lp:e2e").settings("timed")


@pytest.mark.parametrize("value", [0, 9e-7, 1.1e6, 1e300, float("nan"), float("inf")])
def test_class_weights_are_bounded_like_priorities(value: float) -> None:
    with pytest.raises(ConfigError, match=r"objective\.class_weights\.chat: .*, got"):
        validate({"objective": {"class_weights": {"chat": value}}}, RouterConfig, "f")


@pytest.mark.parametrize("policy", ["online_lp", "online_lp_paper", "central_fifo"])
@pytest.mark.parametrize("e2e_s", [3e5, 1e300])
def test_a_horizon_of_too_many_price_buckets_is_refused_where_there_are_prices(policy: str, e2e_s: float) -> None:
    data = {"policy": policy, "objective": {"e2e_threshold_s": e2e_s, "ttft_threshold_s": 2.0}}
    config = validate({**data, "paper_lp": {"horizon_s": e2e_s * 10}}, RouterConfig, "f")
    if policy == "central_fifo":
        assert config.settings("timed").objective.e2e_threshold_s == e2e_s
    else:
        with pytest.raises(ConfigError, match=r"_lp: horizon_s of .*; expected at most 10{4,6} times"):
            config.settings("timed")


def test_a_look_ahead_of_too_many_price_buckets_is_refused() -> None:
    config = validate({"online_lp": {"lookahead_s": 1e300}}, RouterConfig, "f")
    with pytest.raises(ConfigError, match=r"online_lp: lookahead_s of 1e\+300 .*; expected at most 10000 times"):
        config.settings("timed")
