"""The coordinator's levels and counts under the metric names of `metrics`. Reads only."""

from __future__ import annotations

from olp_ray.core.kernels.records import KV_PRICE, SLOT_PRICE
from olp_ray.core.policies.online_lp import OnlineLP
from olp_ray.core.policies.price_updates import PriceUpdates
from olp_ray.core.prices import Pricer
from olp_ray.core.router import Router
from olp_ray.runtime.live_router import LiveRouter
from olp_ray.runtime.metrics import MetricSet
from olp_ray.runtime.ray_pricer import RayPricer

MOST_DEVICES = 64  # series by device are kept for this many, so that their number is bounded


def observe(live: LiveRouter, router: Router, pricer: Pricer) -> MetricSet:
    """The live router's own values, brought up to date."""
    values = live.metrics
    values.set("olp_ray_queue_length", len(router.queue))
    for name in ("olp_ray_residents", "olp_ray_shadow_price"):
        values.drop(name)
    for g, device in enumerate(router.ledger.devices[:MOST_DEVICES]):
        values.set("olp_ray_residents", float(router.ledger.count[g]), device.id)
    if isinstance(router.policy, OnlineLP):
        _observe_prices(values, router.policy.prices)
    for counter, name in _COUNTERS.items():
        values.set(name, float(router.counters[counter]))
    for error, count in live.errors.items():
        values.set("olp_ray_errors_total", float(count), error)
    if isinstance(pricer, RayPricer):
        _observe_shards(values, pricer)
    return values


def _observe_prices(values: MetricSet, prices: PriceUpdates) -> None:
    for g, device_id in enumerate(prices.device_ids[:MOST_DEVICES]):
        values.set("olp_ray_shadow_price", float(prices.tables[g, SLOT_PRICE, 0]), device_id, "slot")
        values.set("olp_ray_shadow_price", float(prices.tables[g, KV_PRICE, 0]), device_id, "kv_token")


def _observe_shards(values: MetricSet, pricer: RayPricer) -> None:
    status = pricer.status()
    values.set("olp_ray_price_updates_total", float(status.updates))
    values.set("olp_ray_shard_rebuilds_total", float(status.rebuilt))
    values.set("olp_ray_shard_replacements_total", float(status.replaced))
    for shard, missed in status.missed.items():
        values.set("olp_ray_price_updates_skipped_total", float(missed), str(shard))
    for shard, lag in status.lag.items():
        values.set("olp_ray_price_lag_updates", float(lag), str(shard))
    for error, count in status.errors.items():
        values.set("olp_ray_errors_total", float(count), error)
    for rounds_s in pricer.take_round_times():
        values.observe("olp_ray_price_update_seconds", rounds_s)


_COUNTERS = {
    "cancelled": "olp_ray_cancelled_total",
    "requeued": "olp_ray_requeued_total",
    "preempted": "olp_ray_preemptions_total",
    "stale_events": "olp_ray_stale_events_total",
    "rate_changes": "olp_ray_rate_changes_total",
}
