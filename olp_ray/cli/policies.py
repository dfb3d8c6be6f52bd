"""`olp-ray policies`."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Column, Table

from olp_ray.config.router import PRESETS, RouterConfig
from olp_ray.core.policies import POLICIES, build_policy, describe_policy


@click.command()
def policies() -> None:
    """List the routing policies and the presets.

    A policy is given as NAME or NAME:PRESET, for example `--policy online_lp:e2e`.
    """
    console = Console()
    console.print(policy_table())
    console.print(preset_table())


def policy_table() -> Table:
    """Every policy: its name, where its requests wait, and its one-line description."""
    settings = RouterConfig().settings("timed")
    table = Table("policy", "requests wait", "what it does", title="Policies")
    for name in POLICIES:
        where = "centrally" if build_policy(name, settings).holding else "at the device"
        table.add_row(name, where, describe_policy(name))
    return table


def preset_table() -> Table:
    """Every preset: its weights, when it rejects, and its one-line description."""
    weights = "throughput, e2e, ttft, qps, tail e2e, tail ttft"
    table = Table(Column("preset", no_wrap=True), weights, Column("rejects", no_wrap=True), "what for", title="Presets")
    for name, preset in PRESETS.items():
        table.add_row(name, ", ".join(f"{weight:g}" for weight in preset.weights), preset.rejects, preset.doc)
    return table
