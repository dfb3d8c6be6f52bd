"""From config models to the router that they describe; the one place where that is done."""

from __future__ import annotations

from collections.abc import Sequence

from olp_ray.config.base import Mode
from olp_ray.config.fleet import FleetConfig
from olp_ray.config.router import RouterConfig
from olp_ray.core.priced_router import PricedRouter
from olp_ray.core.prices import InlinePricer
from olp_ray.core.router import Router
from olp_ray.errors import ConfigError

PAPER_POLICY = "online_lp_paper"  # lag 0 and prices of its own: there is nothing for shards to do


def build_router(config: RouterConfig, fleet: FleetConfig, mode: Mode, seed: int) -> Router:
    """The bare router; its steps carry price work that someone has to do. Raises `ConfigError`."""
    return Router(fleet.core_devices(mode), config.policy, config.settings(mode), config.limits(), seed)


def build_priced_router(
    config: RouterConfig,
    fleet: FleetConfig,
    mode: Mode,
    seed: int,
    *,
    blocks: int = 1,
    missed: Sequence[tuple[int, Sequence[str]]] = (),
) -> PricedRouter:
    """The router with its prices computed in this process, in `blocks` blocks of devices.

    missed lists (update id, device ids) whose tables are lost. Raises `ConfigError`.
    """
    return PricedRouter(build_router(config, fleet, mode, seed), InlinePricer(blocks=blocks, missed=missed))


def refuse_shards(config: RouterConfig, shards: int) -> None:
    """Raise `ConfigError` where shards are asked for and the policy has nothing for them to do."""
    if shards and config.policy == PAPER_POLICY:
        raise ConfigError(
            f"shards is {shards} with policy {PAPER_POLICY!r}, which keeps its own prices; "
            "expected shards 0 (no --shards), or another policy"
        )
