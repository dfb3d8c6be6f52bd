"""Where the named actors are found: one Ray namespace for all of them."""

from __future__ import annotations

from typing import Any

import ray

from olp_ray.errors import RuntimeShellError

NAMESPACE = "olp-ray"


def find_actor(name: str) -> Any:
    """The actor of this name. Raises `RuntimeShellError` with the names there are when it does not run."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE)
    except ValueError as error:
        known = sorted(
            a["name"] for a in ray.util.list_named_actors(all_namespaces=True) if a["namespace"] == NAMESPACE
        )
        raise RuntimeShellError(
            f"no actor {name!r} runs here (Ray at {ray_address()}); running: {', '.join(known) or 'none'}"
        ) from error


def ray_address() -> str:
    """HOST:PORT of the Ray that this process is connected to, as `--address` and RAY_ADDRESS take it."""
    return str(ray.get_runtime_context().gcs_address)
