"""Every YAML file as a validated, frozen model; the only home of defaults.

`base` holds what all models share, `fleet` the devices, `router` the policy and its objective, `runtime` the
processes on Ray, `serve` the endpoint.
"""

from olp_ray.config.base import Mode, Model, load_yaml, nearest, validate
from olp_ray.config.fleet import DeviceConfig, FleetConfig
from olp_ray.config.router import (
    DEFAULT_THRESHOLDS,
    PRESETS,
    ObjectiveConfig,
    OnlineLPConfig,
    Preset,
    RouterConfig,
    online_lp_settings,
)
from olp_ray.config.runtime import RuntimeConfig
from olp_ray.config.serve import ServeConfig

__all__ = [
    "DEFAULT_THRESHOLDS",
    "PRESETS",
    "DeviceConfig",
    "FleetConfig",
    "Mode",
    "Model",
    "ObjectiveConfig",
    "OnlineLPConfig",
    "Preset",
    "RouterConfig",
    "RuntimeConfig",
    "ServeConfig",
    "load_yaml",
    "nearest",
    "online_lp_settings",
    "validate",
]
