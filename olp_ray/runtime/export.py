"""Passes a `MetricSet` on to Ray's own metrics, where a cluster's Prometheus finds it (with Ray's prefix `ray_`)."""

from __future__ import annotations

from typing import Any

from ray.util.metrics import Counter, Gauge, Histogram

from olp_ray.runtime.metrics import METRICS, MetricSet


class RayExporter:
    """Remembers what was passed on: Ray's counters only take increments."""

    def __init__(self) -> None:
        self._instruments: dict[str, Any] = {}
        self._passed: dict[tuple[str, tuple[str, ...]], float] = {}

    def export(self, values: MetricSet) -> None:
        """Everything that changed since the last call."""
        for (name, labels), value in values.values.items():
            tags = dict(zip(METRICS[name].labels, labels, strict=True))
            if METRICS[name].kind == "gauge":
                self._instrument(name).set(value, tags=tags)
                continue
            more = value - self._passed.get((name, labels), 0.0)
            if more > 0:
                self._instrument(name).inc(more, tags=tags)
                self._passed[name, labels] = value
        for name, found in values.distributions.items():
            for value in found.take_fresh():
                self._instrument(name).observe(value)

    def _instrument(self, name: str) -> Any:
        if name not in self._instruments:
            metric = METRICS[name]
            kinds: dict[str, Any] = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
            more = {"boundaries": list(metric.bounds)} if metric.kind == "histogram" else {}
            self._instruments[name] = kinds[metric.kind](name, description=metric.doc, tag_keys=metric.labels, **more)
        return self._instruments[name]
