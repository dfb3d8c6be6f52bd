"""What a run or a comparison leaves in a folder: parquet tables, summary.json, and figures drawn from the tables.

summary.json lists the files that belong to it. A later run in the same folder removes exactly those and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from olp_ray.config.scenario import ScenarioConfig
from olp_ray.errors import ConfigError
from olp_ray.report.plots import plot_latency_cdfs, plot_timeline
from olp_ray.sim.records import write_parquet
from olp_ray.sweep.trial import Arrivals, SeedRun

SUMMARY = "summary.json"
RUN_FILES = (
    "requests.parquet", "decisions.parquet", "timeline.parquet", "prices.parquet", "handle_times.parquet",
    "latency.png", "timeline.png",
)  # fmt: skip


def claim_folder(folder: str | Path, files: Sequence[str]) -> int:
    """Make the folder ready for these files (paths in it); returns how many files of an earlier run were removed.

    Raises `ConfigError`, with nothing removed, when one of them is there and no earlier run says that it wrote it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    own = _files_of(folder)
    for name in (SUMMARY, *files):
        if (folder / name).exists() and name not in own:
            raise ConfigError(f"{folder / name}: is there and not from an earlier run; choose another output folder")
    old = [folder / name for name in own if (folder / name).is_file()]
    for path in old:
        path.unlink()
    for parent in sorted({parent for name in own for parent in (folder / name).parents}, reverse=True):
        if parent != folder and folder in parent.parents and parent.is_dir() and not any(parent.iterdir()):
            parent.rmdir()
    _write(folder, {"complete": False, "files": [SUMMARY, *files]})
    return len(old)


def save_run(run: SeedRun, scenario: ScenarioConfig, arrivals: Arrivals, folder: str | Path) -> list[Path]:
    """Write the tables, summary.json and figures of one run; returns the figures' paths."""
    folder = Path(folder)
    run.result.save(folder)
    write_parquet(run.handle_times, folder / "handle_times.parquet")
    if run.prices is not None and len(run.prices):
        write_parquet(run.prices, folder / "prices.parquet")
    label = f"{scenario.router.policy}:{scenario.router.preset}"
    requests = {label: folder / "requests.parquet"}
    figures = [plot_latency_cdfs(requests, folder / "latency.png", scenario.mode, f"seed {run.seed}")]
    if run.result.timeline is not None:
        figures.append(plot_timeline(folder, folder / "timeline.png", scenario.mode))
    content = {"seed": run.seed, "metrics": run.metrics, "decision_time": run.decision_time}
    write_summary(folder, scenario, arrivals, RUN_FILES, content)
    return figures


def write_summary(
    folder: str | Path,
    scenario: ScenarioConfig,
    arrivals: Arrivals,
    files: Sequence[str],
    content: Mapping[str, Any],
) -> None:
    """Write summary.json: the scenario, the arrival rate that it came to, the folder's files, and the content.

    NaN is written as null.
    """
    _write(
        Path(folder),
        {
            "complete": True,
            "scenario": scenario.model_dump(mode="json"),
            "rate_per_s": arrivals.rate,
            "saturation_per_s": arrivals.saturation,
            "saturation_requests": arrivals.measured_requests,
            **content,
            "files": [SUMMARY, *files],
        },
    )


def _files_of(folder: Path) -> list[str]:
    """What the summary in the folder says was written with it; nothing if it says nothing or is none of ours."""
    try:
        files = json.loads((folder / SUMMARY).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    inside = isinstance(files, list) and all(isinstance(name, str) for name in files)
    return [name for name in files if ".." not in Path(name).parts and not Path(name).is_absolute()] if inside else []


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(_without_nan(content), indent=1, allow_nan=False)
    (folder / SUMMARY).write_text(text + "\n")


def _without_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
