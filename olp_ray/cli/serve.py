"""`olp-ray serve`."""

from __future__ import annotations

from typing import Any

import click

from olp_ray.config.base import load_yaml, validate
from olp_ray.config.serve import ServeConfig


@click.command()
@click.option("--config", "file", metavar="FILE.yaml", help="Serve file; flags win over it.")
@click.option("--host", metavar="ADDRESS", help="Where to listen.  [127.0.0.1]")
@click.option("--port", type=int, metavar="N", help="Where to listen.  [8000]")
@click.option("--fleet", metavar="TEXT", help="Emulated replicas, for example 4xa100-8b.  [4xa100-8b]")
@click.option("--policy", metavar="NAME[:PRESET]", help="Routing policy; see `olp-ray policies`.  [online_lp:balanced]")
@click.option("--shards", metavar="N", help="Price-shard actors: a number, auto or per_device.  [auto]")
@click.option("--seed", type=int, metavar="S", help="Every random draw.  [0]")
def serve(file: str | None, **flags: Any) -> None:
    """Serve an OpenAI-compatible endpoint over a fleet of emulated GPUs, on a local Ray.

    The replicas batch continuously and take the time that the real GPU would. Ctrl-C stops everything.

    \b
    Examples:
      olp-ray serve
      olp-ray serve --fleet 2xa100-8b --policy online_lp:attainment --shards 2 --port 8080
      curl http://127.0.0.1:8000/v1/models
    """
    config = build_serve_config(file, **flags)
    from olp_ray.serve.app import run

    run(config)


def build_serve_config(
    file: str | None, *, policy: str | None = None, shards: str | None = None, **flags: Any
) -> ServeConfig:
    """The config of a file (or of the defaults) with the flags that are not None put in. Raises `ConfigError`."""
    base = load_yaml(file, ServeConfig) if file else ServeConfig()
    changes = {name: value for name, value in flags.items() if value is not None}
    if policy is not None:
        changes["router"] = base.router.with_policy(policy)
    if shards is not None:
        number = int(shards) if shards.isdecimal() else shards
        changes["runtime"] = {**base.runtime.model_dump(), "shards": number}
    return validate({**dict(base), **changes}, ServeConfig, "command line")
