"""The names of all live metrics, frozen, and a set of their values that renders as Prometheus text.

Version 1. A name, a unit or a label here may be added, never changed. Labels only take values from closed sets
(devices, reasons, error types, routes, status codes), so their number is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

VERSION = 1


class Metric(NamedTuple):
    kind: Literal["counter", "gauge", "histogram"]
    doc: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()


_TICK_BOUNDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_WAIT_BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0)

METRICS: dict[str, Metric] = {
    "olp_ray_tick_seconds": Metric("histogram", "One turn of the coordinator's loop.", (), _TICK_BOUNDS),
    "olp_ray_tick_router_seconds": Metric("histogram", "Its part in the router: events, policy.", (), _TICK_BOUNDS),
    "olp_ray_tick_answers_seconds": Metric("histogram", "Its part in handing out decisions.", (), _TICK_BOUNDS),
    "olp_ray_price_update_seconds": Metric("histogram", "The rounds of one price update.", (), _TICK_BOUNDS),
    "olp_ray_queue_length": Metric("gauge", "Requests that wait in the central queue."),
    "olp_ray_residents": Metric("gauge", "Requests on a device, by the router's ledger.", ("device",)),
    "olp_ray_shadow_price": Metric("gauge", "Price of a slot or KV token, now, per second.", ("device", "resource")),
    "olp_ray_admissions_total": Metric("counter", "Requests assigned to a device.", ("device",)),
    "olp_ray_holds_total": Metric("counter", "Requests that did not start in the call in which they arrived."),
    "olp_ray_rejections_total": Metric("counter", "Requests turned away.", ("reason",)),
    "olp_ray_cancelled_total": Metric("counter", "Requests withdrawn before their end, waiting or running."),
    "olp_ray_requeued_total": Metric("counter", "Requests that came back from a device."),
    "olp_ray_preemptions_total": Metric("counter", "Requests that an engine evicted."),
    "olp_ray_stale_events_total": Metric("counter", "Events about an assignment that is no longer current."),
    "olp_ray_rate_changes_total": Metric("counter", "Changes of the arrival rate that the policy found."),
    "olp_ray_errors_total": Metric("counter", "Errors in the coordinator.", ("type",)),
    "olp_ray_price_updates_total": Metric("counter", "Price updates sent to shards."),
    "olp_ray_price_updates_skipped_total": Metric("counter", "Updates that a shard missed.", ("shard",)),
    "olp_ray_price_lag_updates": Metric("gauge", "Updates since a shard's prices were renewed.", ("shard",)),
    "olp_ray_shard_rebuilds_total": Metric("counter", "Blocks built again because their shard was lost."),
    "olp_ray_shard_replacements_total": Metric("counter", "Shard processes replaced because they were silent."),
    "olp_ray_coordinator_restarts_total": Metric("counter", "Starts of the coordinator from a snapshot."),
    "olp_ray_http_requests_total": Metric("counter", "Requests by route and status.", ("route", "status")),
    "olp_ray_http_disconnects_total": Metric("counter", "Clients that left before the end.", ("route",)),
    "olp_ray_queue_seconds": Metric("histogram", "From arrival to assignment.", (), _WAIT_BOUNDS),
    "olp_ray_time_to_first_token_seconds": Metric("histogram", "From arrival to first token.", (), _WAIT_BOUNDS),
    "olp_ray_request_seconds": Metric("histogram", "From arrival to last token.", (), _WAIT_BOUNDS),
    "olp_ray_output_tokens_total": Metric("counter", "Output tokens sent to clients."),
}


@dataclass(slots=True)
class Distribution:
    """Counts per bucket (one more than bounds) and sum; fresh are values that no exporter took yet."""

    counts: list[int]
    total: float = 0.0
    fresh: deque[float] = field(default_factory=lambda: deque(maxlen=10_000))

    def take_fresh(self) -> list[float]:
        """Values since the last call."""
        return [self.fresh.popleft() for _ in range(len(self.fresh))]


@dataclass(slots=True)
class MetricSet:
    """Values by (name, label values). Plain data: it can be sent to another process and rendered there."""

    values: dict[tuple[str, tuple[str, ...]], float] = field(default_factory=dict)
    distributions: dict[str, Distribution] = field(default_factory=dict)

    def add(self, name: str, *labels: str, amount: float = 1.0) -> None:
        """Count up."""
        key = _key(name, labels)
        self.values[key] = self.values.get(key, 0.0) + amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """The value of a gauge, or of a counter that is kept elsewhere."""
        self.values[_key(name, labels)] = value

    def drop(self, name: str) -> None:
        """Forget all label values of a gauge whose members change."""
        self.values = {key: value for key, value in self.values.items() if key[0] != name}

    def observe(self, name: str, value: float) -> None:
        """One more value of a histogram."""
        bounds = METRICS[name].bounds
        found = self.distributions.setdefault(name, Distribution([0] * (len(bounds) + 1)))
        found.counts[bisect_left(bounds, value)] += 1
        found.total += value
        found.fresh.append(value)


def render(sets: Iterable[MetricSet]) -> str:
    """Prometheus text format of several sets, which share no series."""
    lines: list[str] = []
    sets = list(sets)
    for name, metric in METRICS.items():
        series = [line for each in sets for line in _series(name, metric, each)]
        if series:
            lines += [f"# HELP {name} {metric.doc}", f"# TYPE {name} {metric.kind}", *series]
    return "\n".join(lines) + "\n"


def _key(name: str, labels: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    expected = METRICS[name].labels
    if len(labels) != len(expected):
        raise ValueError(f"{name}: got label values {labels}; expected one for each of {expected}")
    return name, labels


def _series(name: str, metric: Metric, values: MetricSet) -> list[str]:
    if metric.kind == "histogram":
        found = values.distributions.get(name)
        return [] if found is None else _buckets(name, metric.bounds, found)
    return [
        f"{name}{_braces(metric.labels, key[1])} {value:g}"
        for key, value in sorted(values.values.items())
        if key[0] == name
    ]


def _buckets(name: str, bounds: tuple[float, ...], found: Distribution) -> list[str]:
    lines, seen = [], 0
    for bound, count in zip((*(f"{b:g}" for b in bounds), "+Inf"), found.counts, strict=True):
        seen += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {seen}')
    return [*lines, f"{name}_sum {found.total:g}", f"{name}_count {seen}"]


def _braces(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for value in values)
    return "{" + ",".join(f'{name}="{value}"' for name, value in zip(names, quoted, strict=True)) + "}"
