"""`olp-ray status`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table


@click.command()
@click.option("--name", default="olp-ray-coordinator", show_default=True, help="The coordinator's name.")
@click.option(
    "--address",
    default="auto",
    show_default=True,
    help="HOST:PORT of the Ray that it runs in; `olp-ray serve` prints it.  auto: RAY_ADDRESS, else one of here.",
)
def status(name: str, address: str) -> None:
    """Show queue, devices, price shards and errors of a running coordinator.

    \b
    Examples:
      olp-ray status
      olp-ray status --name my-coordinator --address 10.0.0.1:6379
    """
    from olp_ray.runtime.status import coordinator_status

    Console().print(status_table(coordinator_status(name, address)), soft_wrap=True)


def status_table(found: dict[str, Any]) -> Table:
    """One line per thing worth knowing."""
    up_s = found["now_s"] - found["started_s"]
    title = f"policy {found['policy']}, process up {up_s:.0f} s, restarted {found['restarts']} times"
    table = Table("what", "value", title=title)
    table.add_row("Ray at", found["ray_address"])
    table.add_row("waiting", str(found["waiting"]))
    table.add_row("on devices", ", ".join(f"{device}: {count}" for device, count in sorted(found["residents"].items())))
    table.add_row("unknown to the router, running", str(found["orphans"]))
    table.add_row("price shards", f"{found['shards']} ({found['shards_reason']})")
    if found["prices"] is not None:
        prices = found["prices"]
        table.add_row("price updates", str(prices.updates))
        table.add_row("updates that came too late to count, by shard", _counts(prices.missed))
        table.add_row("updates since a shard's prices were renewed", _counts(prices.lag))
        table.add_row("blocks rebuilt after a fault of their shard", str(prices.rebuilt))
        table.add_row("silent shards replaced", str(prices.replaced))
        table.add_row("errors of shards", _counts(prices.errors))
    table.add_row("counts", _counts(found["counters"]))
    table.add_row("errors", _counts(found["errors"]))
    return table


def _counts(found: Mapping[Any, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in sorted(found.items()) if count) or "none"
