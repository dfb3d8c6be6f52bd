"""`olp-ray status`."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Console
from rich.table import Table


@click.command()
@click.option("--name", default="olp-ray-coordinator", show_default=True, help="The coordinator's name.")
@click.option("--address", default="auto", show_default=True, help="The Ray that it runs in.")
def status(name: str, address: str) -> None:
    """Show queue, devices, price shards and errors of a running coordinator.

    \b
    Examples:
      olp-ray status
      olp-ray status --name my-coordinator --address 10.0.0.1:6379
    """
    from olp_ray.runtime.wiring import coordinator_status

    Console().print(status_table(coordinator_status(name, address)), soft_wrap=True)


def status_table(found: dict[str, Any]) -> Table:
    """One line per thing worth knowing."""
    table = Table("what", "value", title=f"policy {found['policy']}, up {found['now_s']:.0f} s")
    table.add_row("waiting", str(found["waiting"]))
    table.add_row("on devices", ", ".join(f"{device}: {count}" for device, count in sorted(found["residents"].items())))
    table.add_row("unknown to the router, running", str(found["orphans"]))
    table.add_row("price shards", f"{found['shards']} ({found['shards_reason']})")
    if found["prices"] is not None:
        prices = found["prices"]
        table.add_row("price updates", f"{prices.updates}, missed by shard {prices.missed or 'none'}")
        table.add_row("shards rebuilt, replaced", f"{prices.rebuilt}, {prices.replaced}")
    table.add_row("counts", ", ".join(f"{name} {count}" for name, count in sorted(found["counters"].items())) or "none")
    table.add_row("errors", ", ".join(f"{name} {count}" for name, count in sorted(found["errors"].items())) or "none")
    return table
