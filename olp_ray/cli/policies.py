"""`olp-ray policies`."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from olp_ray.config.router import PRESETS
from olp_ray.core.policies import POLICIES


@click.command()
def policies() -> None:
    """List the routing policies and the presets.

    A policy is given as NAME or NAME:PRESET, for example `--policy online_lp:e2e`.
    """
    console = Console()
    console.print(policy_table())
    console.print(preset_table())


def policy_table() -> Table:
    table = Table("policy", "queue", "what it does", title="Policies")
    for name, spec in POLICIES.items():
        table.add_row(name, "central" if spec.holding else "at the device", spec.doc)
    return table


def preset_table() -> Table:
    table = Table("preset", "throughput, e2e, ttft, qps, tail e2e, tail ttft", "what for", title="Presets")
    for name, preset in PRESETS.items():
        table.add_row(name, ", ".join(f"{weight:g}" for weight in preset.weights), preset.doc)
    return table
