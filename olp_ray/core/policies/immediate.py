"""What the policies without a central queue share: every request is sent on at once, whatever the device holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core.policies.base import NOTHING, PolicyStep, View
from olp_ray.core.policies.central import check_version
from olp_ray.core.policies.outlook import Outlook, send_on
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.types import Objective


class Immediate:
    """Sends each waiting request to the device that `pick` names; a subclass says which."""

    name = ""
    holding = False

    def __init__(self, settings: PolicySettings) -> None:
        self._turn = 0

    def load(self, view: View, now_s: float) -> np.ndarray:
        """What counts as load on each device, (G,): requests queued or running, unless a subclass says otherwise."""
        return view.ledger.occupied_slots.astype(np.float64)

    def added_load(self, view: View, index: int) -> float:
        """What the waiting request at this place adds to it."""
        return 1.0

    def pick(self, devices: np.ndarray, load: np.ndarray, view: View, rng: np.random.Generator) -> int:
        """One of `devices` (fleet indices that may run the request); load (G,) includes those sent in this step."""
        raise TypeError(f"{type(self).__name__} does not say where it sends requests")

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        if not view.waiting:
            return NOTHING
        allowed = None if view.ledger.runs_everything else view.may_run()
        devices = view.open_devices()
        load = self.load(view, now_s)
        placed = []
        for i in range(len(view.waiting)):
            if allowed is not None:
                devices = allowed[:, i].nonzero()[0]
            if not len(devices):
                continue
            g = self.pick(devices, load, view, rng)
            load[g] += self.added_load(view, i)
            self._turn += 1
            placed.append(view.assign(i, g))
        return PolicyStep(tuple(placed))

    def reconfigure(self, objective: Objective) -> None:
        """Nothing here depends on the objective."""

    def snapshot(self) -> dict[str, Any]:
        return {"version": 1, "turn": self._turn}

    def restore(self, state: Mapping[str, Any]) -> None:
        check_version(state)
        self._turn = int(state["turn"])

    def outlook(self, view: View, now_s: float) -> Outlook:
        """A request waits here only while no device may run it."""
        return send_on(view)

    def worth(self, view: View, now_s: float) -> None:
        """Nothing is weighed: the device is chosen by load or by turn."""


def least(devices: np.ndarray, score: np.ndarray, turn: int) -> int:
    """The device of the smallest score; ties go to the index rotated by `turn`."""
    rotated = (devices - turn) % len(score)
    return int(devices[np.lexsort((rotated, score[devices]))[0]])
