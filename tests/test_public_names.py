"""The public names, pinned: whoever adds or removes one does it here too."""

from __future__ import annotations

import subprocess
import sys

import pytest

import olp_ray

NAMES = {
    "METRICS", "POLICIES", "Device", "FleetConfig", "Objective", "OlpRayError", "PricedRouter", "Request", "Router",
    "RouterConfig", "ScenarioConfig", "ServeConfig", "SweepConfig", "build_priced_router", "compare", "read_trace",
    "run_seed", "simulate", "summarise",
}  # fmt: skip


def test_names_are_pinned() -> None:
    assert set(olp_ray.__all__) == NAMES
    assert set(dir(olp_ray)) >= NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_is_there(name: str) -> None:
    assert getattr(olp_ray, name) is not None


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = olp_ray.nothing


def test_using_every_public_name_loads_neither_ray_nor_matplotlib() -> None:
    code = "import sys\nfrom olp_ray import *\nprint(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"ray", "matplotlib"} & set(done.stdout.split())
