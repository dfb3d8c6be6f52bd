"""What a run or a comparison leaves in a folder: parquet tables, summary.json, and figures drawn from the tables."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.report.plots import plot_latency_cdfs, plot_timeline
from olp_ray.sweep.trial import Arrivals, SeedRun


def save_run(run: SeedRun, scenario: ScenarioConfig, arrivals: Arrivals, folder: str | Path) -> list[Path]:
    """Write the tables, summary.json and figures of one run; returns the figures' paths."""
    folder = Path(folder)
    run.result.save(folder)
    write_summary(folder, scenario, arrivals, {"seed": run.seed, "metrics": run.metrics})
    label = f"{scenario.router.policy}:{scenario.router.preset}"
    figures = [plot_latency_cdfs({label: folder / "requests.parquet"}, folder / "latency.png")]
    if run.result.timeline is not None:
        figures.append(plot_timeline(folder, folder / "timeline.png"))
    return figures


def write_summary(folder: Path, scenario: ScenarioConfig, arrivals: Arrivals, content: Mapping[str, Any]) -> None:
    """Write summary.json: the scenario, the arrival rate that it came to, and the content. NaN is written as null."""
    summary = {
        "scenario": scenario.model_dump(mode="json"),
        "rate_per_s": arrivals.rate,
        "saturation_per_s": arrivals.saturation,
        **content,
    }
    text = json.dumps(_without_nan(summary), indent=1, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
