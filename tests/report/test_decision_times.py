from __future__ import annotations

import math

import pandas as pd
import pytest

from olp_ray.report.decision_times import summarise_calls


def test_milliseconds_of_calls() -> None:
    found = summarise_calls(pd.DataFrame({"wall_s": [0.001, 0.002, 0.003]}))
    assert found == pytest.approx({"calls": 3, "mean_ms": 2, "p50_ms": 2, "p99_ms": 2.98, "max_ms": 3})


def test_a_router_that_was_never_called() -> None:
    found = summarise_calls(pd.DataFrame({"wall_s": []}))
    assert found["calls"] == 0
    assert math.isnan(found["p99_ms"])
