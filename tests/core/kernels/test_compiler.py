"""Kernels are compiled once per machine, and work where nothing can be kept on disk."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from numba.core import caching

import olp_ray
from olp_ray.core.kernels.compiler import kernel

RUN = """
import sys
from olp_ray.config import FleetConfig, RouterConfig
from olp_ray.config.build import build_priced_router
from olp_ray.core import kernels
from olp_ray.sim import simulate
from olp_ray.workload import make_requests, parse_predictor
from olp_ray.workload.generators import generate

requests = make_requests(generate("chat1m", 150, 9.0, seed=1), parse_predictor("uniform:0.2"), 0, rotate=False)
for fleet, mode in (("2xB24M40000", "period"), ("2xa100-7b", "timed")):
    for policy in ("online_lp", "sjf_reservation", "online_lp_paper"):
        router = build_priced_router(RouterConfig(policy=policy), FleetConfig.parse(fleet), mode, 0)
        simulate(requests, FleetConfig.parse(fleet), mode, router, update_s=8.0)
for module in kernels.__all__:
    for name, found in vars(getattr(kernels, module)).items():
        print(name, len(found.signatures)) if hasattr(found, "signatures") else None
"""

CALL = """
import numpy as np
from olp_ray.core.kernels import worth

four, added_s = np.full(4, 4.0), np.zeros(3)
shares = worth.resource_shares(four, four, added_s, *np.ones((3, 1)))
print(worth.__file__, shares[0, 0], sum(worth.resource_shares.stats.cache_misses.values()) == 1)
"""

compiled_only = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="kernels run as plain Python")


@compiled_only
def test_each_kernel_has_one_type_per_argument():
    done = subprocess.run([sys.executable, "-c", RUN], capture_output=True, text=True, check=True)
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert {"decide", "fill", "cost_from_now", "best_bids", "weigh"} <= set(counts)
    assert {name: int(count) for name, count in counts.items() if int(count) > 1} == {}


@compiled_only
def test_without_a_place_on_disk_kernels_work_and_a_warning_says_so(monkeypatch):
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):

        @kernel
        def double(x):
            return 2.0 * x

    assert double(4.0) == 8.0


@compiled_only
def test_division_by_zero_is_as_on_arrays():
    @kernel
    def share(x, y):
        return x / y

    assert share(1.0, 0.0) == float("inf")


@compiled_only
def test_code_on_disk_is_renewed_when_a_kernel_of_another_file_changes(tmp_path):
    """A kernel of `worth` holds the code of one of `holding`."""
    shutil.copytree(Path(olp_ray.__file__).parent, tmp_path / "olp_ray", ignore=shutil.ignore_patterns("__pycache__"))
    callee = tmp_path / "olp_ray" / "core" / "kernels" / "holding.py"
    found = []
    for total in ("total = 0.0", "total = 12.0"):
        assert callee.read_text().count("total = ") == 1
        callee.write_text(callee.read_text().replace("total = 0.0", total))
        path = {**os.environ, "PYTHONPATH": str(tmp_path)}
        run = [sys.executable, "-c", CALL]
        done = subprocess.run(run, capture_output=True, text=True, check=True, env=path, cwd=tmp_path)
        found.append(done.stdout.split())
    (home, *_), (again, *_) = found
    assert Path(home).is_relative_to(tmp_path)
    assert home == again
    assert [shares for _, *shares in found] == [["0.25", "True"], ["0.14285714285714285", "True"]]
