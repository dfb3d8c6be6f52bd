"""The figure of a workload: its rate over time and its lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd


def plot_workload(frame: pd.DataFrame, path: str | Path, spans: int = 60, *, timed: bool = True) -> Path:
    """Arrival rate in `spans` equal spans, and CDFs of prompt and output tokens, as a PNG. Returns its path.

    The file's folder is made where there is none. Of a trace without arrival times (not
    timed) there is no rate to draw.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    rate, lengths = figure.subplots(1, 2)
    if timed:
        counts, edges = np.histogram(frame["arrived_at"], bins=spans)
        rate.stairs(counts / np.diff(edges), edges, fill=True, alpha=0.8)
        rate.set(xlabel="time (s)", ylabel="requests/s")
    else:
        rate.set_axis_off()
        rate.text(0.5, 0.5, "no arrival times in the file", ha="center", va="center", transform=rate.transAxes)
    for column, label in (("num_prefill_tokens", "prompt"), ("num_decode_tokens", "output")):
        values = np.sort(frame[column].to_numpy())
        lengths.step(values, np.arange(1, len(values) + 1) / len(values), where="post", label=label)
    lengths.set(xlabel="tokens", ylabel="share of requests", xscale="symlog", ylim=(0, 1))
    lengths.grid(alpha=0.3)
    lengths.legend(loc="lower right")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return Path(path)
