"""What a policy is: the protocol, what it may look at, and what it returns. No policy lives here.

A policy is told everything through its view and changes nothing but its own state: the router commits decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.calibration import Calibration
from olp_ray.core.ledger import Ledger
from olp_ray.core.prefix_index import PrefixIndex
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.types import (
    Assign,
    AssignmentKey,
    Decision,
    Objective,
    PricesReady,
    PriceWork,
    Request,
)

if TYPE_CHECKING:
    from olp_ray.core.policies.outlook import Outlook, Worth


@dataclass(frozen=True, slots=True)
class Completion:
    """A request that finished, with the length that it turned out to have."""

    request: Request
    output_tokens: int


@dataclass(slots=True)
class View:
    """What a policy sees in one step; nothing in it may be changed. waiting is in order (arrival_s, id)."""

    waiting: WaitingQueue
    ledger: Ledger
    calibration: Calibration
    arrivals: tuple[Request, ...]
    completions: tuple[Completion, ...]
    prices: tuple[PricesReady, ...]
    prefixes: PrefixIndex

    def assign(self, waiting_index: int, device_index: int) -> Assign:
        """Release waiting[waiting_index] to the ledger's device device_index, now."""
        entry = self.waiting[waiting_index]
        device = self.ledger.devices[device_index]
        key = AssignmentKey(entry.request.id, entry.request.stage, device.id, device.incarnation, entry.attempt)
        return Assign(key, entry.request)

    @property
    def tick_s(self) -> float:
        """Resolution of the clock."""
        return kernels.holding.mean_step_s(self.ledger.step_s)

    def cached_tokens(self) -> np.ndarray:
        """Prompt tokens probably cached, (J, G); (J, 1) zeros while nothing is known of any prefix."""
        if self.prefixes.is_empty:
            return np.zeros((len(self.waiting), 1))
        requests = [entry.request for entry in self.waiting]
        return self.prefixes.hit_tokens(requests, [device.id for device in self.ledger.devices])

    def open_devices(self) -> np.ndarray:
        """Indices of the devices that take new requests."""
        return self.ledger.open_devices

    def may_run(self) -> np.ndarray:
        """Whether the device takes new requests, and the request's model and stage are allowed there: bool (G, J), or
        (G, 1) where every device runs everything."""
        open_devices = ~self.ledger.draining
        if self.ledger.runs_everything:
            return open_devices[:, None]
        devices = self.ledger.devices
        allowed = [[device.can_run(entry.request) for entry in self.waiting] for device in devices]
        return np.array(allowed, dtype=bool).reshape(len(devices), -1) & open_devices[:, None]

    def too_small(self, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
        """(G, J) bool: not even empty could the device hold the request to its planned end, and it should not try.

        Where no device that may run the request could hold it, the largest of those should try: a prediction can be
        wrong, and the forecast cuts it to what fits there, so that it can not block a request forever.
        """
        return kernels.planning.too_small(*self._room(), np.array(prompt_tokens), np.array(length_tokens))

    def may_hold(self, prompt_tokens: np.ndarray, length_tokens: np.ndarray) -> np.ndarray:
        """(G, J) bool: `may_run`, and the device is not too small for the request."""
        return kernels.planning.may_hold(*self._room(), np.array(prompt_tokens), np.array(length_tokens))

    def has_a_place(self, prompt_tokens: np.ndarray) -> np.ndarray:
        """(J,) bool: a device that takes new requests could hold the prompt and one token more if it were empty."""
        may_run, room = self._room()
        return np.any(may_run & (np.asarray(prompt_tokens) + 1 <= room[:, None]), axis=0)

    def _room(self) -> tuple[np.ndarray, np.ndarray]:
        """`may_run`, and the KV tokens that each device has for one request when empty, (G,)."""
        return self.may_run(), self.ledger.kv_tokens - self.ledger.padding


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """rate_changed says that the policy found another rate of arrivals, and forgot what came before."""

    decisions: tuple[Decision, ...] = ()
    price_work: PriceWork | None = None
    next_wake_s: float = math.inf
    rate_changed: bool = False


NOTHING = PolicyStep()


class Policy(Protocol):
    """A routing rule. holding says whether it keeps requests in the central queue until they can start.

    `step` is called once per `Router.handle`; where nothing waits, only if the policy holds requests. `snapshot`
    returns a dict of plain values and arrays that `restore` of a newly built policy of the same name takes back.

    `outlook` is what `step` would decide about what waits, at the prices in force, and `worth` what it would weigh
    (None: nothing). Both change nothing, and are asked only when something waits; `worth` only if a device is there.
    """

    name: str
    holding: bool

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep: ...

    def reconfigure(self, objective: Objective) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, state: Mapping[str, Any]) -> None: ...

    def outlook(self, view: View, now_s: float) -> Outlook: ...

    def worth(self, view: View, now_s: float) -> Worth | None: ...
