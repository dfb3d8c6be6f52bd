"""Routing policies by name: one file and one registry line each.

`POLICIES` maps a name to the class; a class is built from `PolicySettings`. Its module docstring says what it does.
"""

from __future__ import annotations

import difflib
import inspect
import sys
from collections.abc import Callable

from olp_ray.core.policies.aged_sjf import AgedSjf
from olp_ray.core.policies.base import Policy
from olp_ray.core.policies.central_fifo import CentralFifo
from olp_ray.core.policies.central_fifo_skip import CentralFifoSkip
from olp_ray.core.policies.central_sjf import CentralSjf
from olp_ray.core.policies.edf import Edf
from olp_ray.core.policies.hrrn import Hrrn
from olp_ray.core.policies.least_kv import LeastKv
from olp_ray.core.policies.least_outstanding import LeastOutstanding
from olp_ray.core.policies.on_time_fifo import OnTimeFifo
from olp_ray.core.policies.on_time_sjf import OnTimeSjf
from olp_ray.core.policies.online_lp import OnlineLP
from olp_ray.core.policies.online_lp_paper import OnlineLPPaper
from olp_ray.core.policies.power_of_two import PowerOfTwo
from olp_ray.core.policies.random_choice import RandomChoice
from olp_ray.core.policies.round_robin import RoundRobin
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.policies.sjf_reservation import SjfReservation
from olp_ray.core.policies.smallest_volume import SmallestVolume
from olp_ray.errors import PolicyError

POLICIES: dict[str, Callable[[PolicySettings], Policy]] = {
    "round_robin": RoundRobin,
    "random": RandomChoice,
    "least_outstanding": LeastOutstanding,
    "power_of_two": PowerOfTwo,
    "least_kv": LeastKv,
    "central_fifo": CentralFifo,
    "central_fifo_skip": CentralFifoSkip,
    "central_sjf": CentralSjf,
    "smallest_volume": SmallestVolume,
    "edf": Edf,
    "on_time_sjf": OnTimeSjf,
    "on_time_fifo": OnTimeFifo,
    "hrrn": Hrrn,
    "aged_sjf": AgedSjf,
    "sjf_reservation": SjfReservation,
    "online_lp": OnlineLP,
    "online_lp_paper": OnlineLPPaper,
}


def build_policy(name: str, settings: PolicySettings) -> Policy:
    """A new policy of this name. Raises `PolicyError` that lists the valid names."""
    if name not in POLICIES:
        close = difflib.get_close_matches(name, POLICIES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise PolicyError(f"policy {name!r} is unknown{hint} (valid: {', '.join(POLICIES)})")
    return POLICIES[name](settings)


def describe_policy(name: str) -> str:
    """The first sentence of the policy's module, for lists of policies."""
    module = sys.modules[POLICIES[name].__module__]
    return (inspect.getdoc(module) or "").split("\n\n")[0].replace("\n", " ")
