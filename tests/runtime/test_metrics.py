import pickle

import pytest

from olp_ray.runtime.metrics import METRICS, VERSION, MetricSet, render

NAMES_OF_VERSION_1 = {
    "tick_seconds",
    "tick_router_seconds",
    "tick_answers_seconds",
    "price_update_seconds",
    "queue_length",
    "residents",
    "shadow_price",
    "admissions_total",
    "holds_total",
    "rejections_total",
    "cancelled_total",
    "requeued_total",
    "preemptions_total",
    "stale_events_total",
    "errors_total",
    "price_updates_total",
    "price_updates_skipped_total",
    "price_lag_updates",
    "shard_rebuilds_total",
    "shard_replacements_total",
    "coordinator_restarts_total",
    "http_requests_total",
    "http_disconnects_total",
    "queue_seconds",
    "time_to_first_token_seconds",
    "request_seconds",
    "output_tokens_total",
}


def test_names_are_frozen():
    assert VERSION == 1
    assert {f"olp_ray_{name}" for name in NAMES_OF_VERSION_1} <= set(METRICS)
    for name, metric in METRICS.items():
        assert name.endswith("_total") == (metric.kind == "counter")
        assert (metric.kind == "histogram") == bool(metric.bounds)
        assert not (metric.labels and metric.kind == "histogram")


def test_rendered_text_is_what_prometheus_reads():
    values = MetricSet()
    values.add("olp_ray_rejections_total", "queue_full")
    values.add("olp_ray_rejections_total", "queue_full", amount=2)
    values.set("olp_ray_residents", 3, 'd"0')
    for seconds in (0.0002, 0.05, 7.0):
        values.observe("olp_ray_tick_seconds", seconds)
    other = pickle.loads(pickle.dumps(values))
    lines = render([other]).splitlines()
    assert 'olp_ray_rejections_total{reason="queue_full"} 3' in lines
    assert 'olp_ray_residents{device="d\\"0"} 3' in lines
    assert 'olp_ray_tick_seconds_bucket{le="0.0003"} 1' in lines
    assert 'olp_ray_tick_seconds_bucket{le="0.1"} 2' in lines
    assert 'olp_ray_tick_seconds_bucket{le="+Inf"} 3' in lines
    assert "olp_ray_tick_seconds_count 3" in lines
    assert lines.count("# TYPE olp_ray_tick_seconds histogram") == 1


def test_label_values_must_be_complete():
    with pytest.raises(ValueError, match="expected one for each of"):
        MetricSet().add("olp_ray_rejections_total")


def test_fresh_values_are_taken_once():
    values = MetricSet()
    values.observe("olp_ray_tick_seconds", 0.5)
    assert values.distributions["olp_ray_tick_seconds"].take_fresh() == [0.5]
    assert values.distributions["olp_ray_tick_seconds"].take_fresh() == []
