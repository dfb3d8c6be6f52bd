"""What is compiled once, on a disk that has no kernels yet; and nothing waits where it has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.sweep.compiling import compiles, uncompiled, waits

SCENARIO = ScenarioConfig()
NAMES = ("round_robin", "round_robin", "central_fifo", "edf", "online_lp:e2e", "online_lp", "online_lp_paper")

# prints what waits before a run of central FIFO, and after
SCRIPT = """
from olp_ray.config.scenario import ScenarioConfig
from olp_ray.sweep.compiling import compiles, waits
from olp_ray.sweep.trial import run_seed
from tests.sweep.test_compiling import NAMES

scenario = ScenarioConfig.model_validate({"fleet": "1xa100-8b", "requests": 20, "rate": 30})
routers = [scenario.router.with_policy(name) for name in NAMES]
loaded = scenario.model_copy(update={"rate": None})
print(waits(routers, "timed"), compiles(scenario, routers[:1]), compiles(loaded, routers[:1]))
run_seed(scenario.model_copy(update={"router": routers[2]}), 0, 30.0)
print(waits(routers, "timed"), compiles(loaded, routers[:4]), compiles(scenario, routers))
"""


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="kernels run as plain Python")
def test_the_first_run_of_a_kind_compiles_and_the_rest_waits(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    before, after = done.stdout.splitlines()
    assert before == "{3: 2, 4: 2, 5: 4, 6: 4} False True"
    assert after == "{5: 4} False True"  # central FIFO has compiled what all but online_lp need


def test_what_sends_on_at_once_compiles_nothing() -> None:
    assert uncompiled(SCENARIO.router.with_policy("least_kv"), "timed") is None
    assert waits([SCENARIO.router.with_policy("least_kv")] * 3, "timed") == {}


@pytest.mark.skipif(not numba.config.DISABLE_JIT, reason="kernels are compiled")
def test_without_compiling_nothing_waits() -> None:
    routers = [SCENARIO.router.with_policy(name) for name in NAMES]
    assert waits(routers, "timed") == {}
    assert not compiles(SCENARIO, routers)
