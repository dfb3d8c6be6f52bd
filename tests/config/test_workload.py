"""The notations of arrivals and sessions, and what a scenario makes of them."""

from __future__ import annotations

import pytest

from olp_ray.config.base import validate
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.config.workload import ArrivalsConfig, RateFrom, SessionsConfig
from olp_ray.errors import ConfigError


def test_notations() -> None:
    assert ArrivalsConfig.parse("poisson") == ArrivalsConfig()
    assert ArrivalsConfig.parse("gamma:2.5") == ArrivalsConfig(process="gamma", variation=2.5)
    rates = (RateFrom(from_s=0, rate=0.4), RateFrom(from_s=1500, rate=0.6))
    assert ArrivalsConfig.parse("rates:0.4@0,0.6@1500") == ArrivalsConfig(process="rates", rates=rates)
    assert SessionsConfig.parse("4:30") == SessionsConfig(turns=4, think_s=30)


def test_scenarios_take_the_notation_and_the_long_form() -> None:
    short = validate({"arrivals": "gamma:3", "sessions": "2:10"}, ScenarioConfig, "s")
    long = {"arrivals": {"process": "gamma", "variation": 3}, "sessions": {"turns": 2, "think_s": 10}}
    assert validate(long, ScenarioConfig, "s") == short


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gama:3", "arrivals 'gama:3': expected poisson, gamma:CV, or rates"),
        ("gamma", "arrivals 'gamma': expected poisson"),
        ("gamma:-1", "greater than 0; expected"),
        ("rates:0.4", "expected poisson, gamma:CV, or rates"),
        ("rates:0.4@5", "must start at 0 and rise, got 5"),
        ("rates:1@0,2@9,3@9", "must start at 0 and rise, got 0, 9, 9"),
        ("rates:1@0,0@9", "the last rate must be above 0"),
    ],
)
def test_wrong_arrivals(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        ArrivalsConfig.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("4", "expected TURNS:THINK_S"), ("0.5:3", "greater than or equal to 1")]
)
def test_wrong_sessions(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        SessionsConfig.parse(text)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"arrivals": "rates:1@0", "load": 1}, "state their own rates"),
        ({"sessions": "2:10", "trace": "t.csv"}, "a trace has its own"),
        ({"sim": {"prefix_caching": True, "prefix_block_tokens": 16}}, "is 16 and router.prefix_block_tokens 512"),
        ({"arrivals": {"process": "poisson", "variation": 2}}, "variation is of process gamma"),
        ({"arrivals": {"process": "rates"}}, "needs a list of rates"),
    ],
)
def test_what_does_not_go_together(keys: dict, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        validate(keys, ScenarioConfig, "s")
