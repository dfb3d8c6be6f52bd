"""Warming loads every kernel that the same policy then uses, so that no request waits for one."""

import subprocess
import sys

import pytest

SCRIPT = """
import numpy as np
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.core import kernels
from olp_ray.core.prices import InlinePricer
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Finished, Request, Started
from olp_ray.runtime.warm import warm_block, warm_router

def loaded():
    found = [part for module in kernels.__all__ for part in vars(getattr(kernels, module)).values()]
    return {item.py_func.__qualname__: len(item.signatures) for item in found if getattr(item, "signatures", None)}

config = RouterConfig().with_policy("POLICY")
devices = FleetConfig.parse("2xa100-8b").core_devices("timed")
warm_block()
warm_router(devices, config)
before = loaded()
router = PricedRouter(Router(devices, config.policy, config.settings("timed"), config.limits(), 0), InlinePricer())
now_s, held = 0.0, []
for i in range(200):
    now_s += 0.05
    ended = [Finished(decision.key, 20) for decision in held if i % 3 == 0]
    held = [] if ended else held
    for decision in router.handle(now_s, [*ended, Arrived(Request(str(i), now_s, 300, 200.0))]).decisions:
        router.handle(now_s, [Started(decision.key)])
        held.append(decision)
print(sorted(set(loaded().items()) - set(before.items())))
"""


@pytest.mark.parametrize("policy", ["online_lp", "central_sjf"])
def test_a_warm_process_loads_nothing_more(policy):
    script = SCRIPT.replace("POLICY", policy)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
