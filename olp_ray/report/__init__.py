"""From log tables to numbers, terminal tables and figures."""

from olp_ray.report.intervals import Interval, mean_interval, paired_interval
from olp_ray.report.metrics import METRICS, summarise
from olp_ray.report.tables import comparison_table, ranked, summary_table

__all__ = [
    "METRICS",
    "Interval",
    "comparison_table",
    "mean_interval",
    "paired_interval",
    "ranked",
    "summarise",
    "summary_table",
]
