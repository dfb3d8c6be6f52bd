"""Request routing for fleets of LLM replicas by online linear programming.

The public names are imported when they are first used, so that `import olp_ray` loads neither Ray nor matplotlib, and a
price-shard process loads nothing but the core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from olp_ray.core import kernels
from olp_ray.sources import kernels_digest

if TYPE_CHECKING:
    from olp_ray.config import FleetConfig, RouterConfig, ServeConfig
    from olp_ray.config.build import build_priced_router
    from olp_ray.config.scenario import ScenarioConfig
    from olp_ray.config.sweep import SweepConfig
    from olp_ray.core.policies import POLICIES
    from olp_ray.core.priced_router import PricedRouter
    from olp_ray.core.router import Router
    from olp_ray.core.types import Device, Objective, Request
    from olp_ray.errors import OlpRayError
    from olp_ray.report.metrics import METRICS, summarise
    from olp_ray.sim.simulate import simulate
    from olp_ray.sweep.compare import compare
    from olp_ray.sweep.trial import run_seed
    from olp_ray.workload.traces import read_trace

kernels.text_digest = kernels_digest

_HOME = {
    "METRICS": "olp_ray.report.metrics",
    "POLICIES": "olp_ray.core.policies",
    "Device": "olp_ray.core.types",
    "FleetConfig": "olp_ray.config",
    "Objective": "olp_ray.core.types",
    "OlpRayError": "olp_ray.errors",
    "PricedRouter": "olp_ray.core.priced_router",
    "Request": "olp_ray.core.types",
    "Router": "olp_ray.core.router",
    "RouterConfig": "olp_ray.config",
    "ScenarioConfig": "olp_ray.config.scenario",
    "ServeConfig": "olp_ray.config",
    "SweepConfig": "olp_ray.config.sweep",
    "build_priced_router": "olp_ray.config.build",
    "compare": "olp_ray.sweep.compare",
    "read_trace": "olp_ray.workload.traces",
    "run_seed": "olp_ray.sweep.trial",
    "simulate": "olp_ray.sim.simulate",
    "summarise": "olp_ray.report.metrics",
}

__all__ = [
    "METRICS",
    "POLICIES",
    "Device",
    "FleetConfig",
    "Objective",
    "OlpRayError",
    "PricedRouter",
    "Request",
    "Router",
    "RouterConfig",
    "ScenarioConfig",
    "ServeConfig",
    "SweepConfig",
    "build_priced_router",
    "compare",
    "read_trace",
    "run_seed",
    "simulate",
    "summarise",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
