"""The non-dominated trials of a sweep, as a table and as a figure, from its parquet file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from olp_ray.config.base import nearest
from olp_ray.errors import ConfigError
from olp_ray.sweep.pareto import hypervolume, non_dominated
from olp_ray.sweep.results import PARAM, read_results


@dataclass(frozen=True, eq=False)
class Front:
    """trials: one row per trial (means over seeds), with the column `on_front`; sorted by the first objective.

    hypervolume is measured against the worst value of each objective over all trials.
    """

    trials: pd.DataFrame
    objectives: dict[str, str]
    hypervolume: float

    @property
    def members(self) -> pd.DataFrame:
        return self.trials[self.trials["on_front"]]

    @property
    def params(self) -> list[str]:
        return [name for name in self.trials.columns if name.startswith(PARAM)]


def read_front(path: str | Path, objectives: Mapping[str, str] | None = None) -> Front:
    """The front over the file's own objectives, or over these. Raises `ConfigError` for a metric that is not there."""
    rows, recorded = read_results(Path(path))
    chosen = dict(objectives or recorded)
    metrics = [name for name in rows.columns if name not in ("trial", "seed") and not name.startswith(PARAM)]
    for name in chosen:
        if name not in metrics:
            raise ConfigError(f"{path}: no metric {name!r}{nearest(name, metrics)}")
    trials = rows.drop(columns="seed").groupby("trial", as_index=False).mean(numeric_only=True)
    costs = np.column_stack([trials[name] * (1 if way == "min" else -1) for name, way in chosen.items()])
    trials["on_front"] = non_dominated(costs)
    worst = np.nanmax(costs, axis=0)
    trials = trials.sort_values([next(iter(chosen)), "trial"], ignore_index=True)
    return Front(trials, chosen, hypervolume(costs, worst))


def draw_front(front: Front, path: str | Path, axes: Sequence[str] | None = None) -> Path:
    """Write a PNG of all trials over two objectives, the front's members marked. Returns its path."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    x, y = (axes or [*front.objectives, "trial"])[:2]
    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.add_subplot()
    others = front.trials[~front.trials["on_front"]]
    ax.scatter(others[x], others[y], color="0.7", label=f"dominated ({len(others)})")
    ax.plot(front.members[x], front.members[y], "o-", color="C0", label=f"non-dominated ({len(front.members)})")
    for _, trial in front.members.iterrows():
        ax.annotate(str(int(trial["trial"])), (trial[x], trial[y]), xytext=(4, 4), textcoords="offset points")
    ax.set(xlabel=_label(front, x), ylabel=_label(front, y), title=f"{len(front.trials)} trials, numbered by trial")
    ax.legend()
    figure.savefig(path, dpi=120)
    return Path(path)


def _label(front: Front, name: str) -> str:
    way = front.objectives.get(name)
    return name if way is None else f"{name} ({'lower' if way == 'min' else 'higher'} is better)"
