"""What a decode iteration takes on each device under what it holds: a first estimate, corrected by what is observed.

Here live these estimates only. Who is on a device, and since when, is the ledger's.

Notation
    symbol   meaning                                            shape     unit      paper
    tau      seconds per decode iteration                       (G,)      s         1

tau is an idle part and what residents add. They are brought up to date when they are read, because many events come
between two looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from olp_ray.core.types import Device, IterationModel

ALIKE_SHARE = 0.3  # devices of one kind whose learned idle step is within this of their mean count as equal
LEAST_STEP_SHARE = 0.05  # of the device's first estimate
STEP_BLEND = 0.2  # weight of a new observation of the step time


class StepTimes:
    """Estimates as arrays over the ledger's devices. Public arrays are for reading."""

    def __init__(self) -> None:
        self._devices: list[Device] = []
        self._step_s = np.zeros(0)
        self._own_idle_s = np.zeros(0)  # step time less what residents add to it, as learned from the device itself
        self._idle_s = np.zeros(0)  # the same, shared by devices of one kind
        self._added_s = np.zeros(0)  # what residents add to it now
        self._sequences: list[int] = []  # residents
        self._tokens: list[float] = []  # their prompts and decoded tokens
        self._changed: set[int] = set()  # devices whose residents changed since their _added_s was computed
        self._pool_due = False  # whether _own_idle_s changed since _idle_s was computed
        self._renew()

    @property
    def step_s(self) -> np.ndarray:
        """tau, (G,): under what the device holds now, so that an idle device is not taken for a slow one."""
        if self._changed or self._pool_due:
            self._settle()
        return self._step_s

    def join(self, device: Device) -> None:
        """Add an empty device at the end."""
        idle_s = device.step_s - _added_s(device, device.slots, device.kv_tokens / 2)
        for name, value in zip(_ARRAYS, (0.0, idle_s, idle_s, 0.0), strict=True):
            setattr(self, name, np.append(getattr(self, name), value))
        self._devices.append(device)
        self._sequences.append(0)
        self._tokens.append(0.0)
        self._renew()
        self._pool_due = True

    def remove(self, g: int) -> None:
        self._settle()
        for name in _ARRAYS:
            setattr(self, name, np.delete(getattr(self, name), g))
        del self._devices[g], self._sequences[g], self._tokens[g]
        self._renew()

    def hold(self, g: int, sequences: int, more_tokens: float) -> None:
        """The device has this many residents now, and they hold more (or fewer) tokens than before."""
        self._sequences[g] = sequences
        self._tokens[g] += more_tokens
        self._changed.add(g)

    def stand_still(self, g: int, more_tokens: float) -> None:
        """A resident was put back: its tokens count from the next `hold` on."""
        if g in self._changed:
            self._settle()
        self._tokens[g] += more_tokens

    def learn(self, g: int, step_s: float) -> None:
        """From one observation, what an iteration takes besides what its residents add; that also stands for the
        prompts in it."""
        own = self._own_idle_s.item(g)
        self._own_idle_s[g] = own + STEP_BLEND * (step_s - self._added_now_s(g) - own)
        self._changed.add(g)
        self._pool_due = True

    def check_invariants(self, sequences: Sequence[int], tokens: Sequence[float]) -> None:
        """Raise AssertionError unless devices hold what the ledger says."""
        assert self._sequences == list(sequences)
        assert self._tokens == list(tokens)

    def snapshot(self) -> dict[str, Any]:
        self._settle()
        held = {"sequences": list(self._sequences), "tokens": list(self._tokens)}
        return {"devices": list(self._devices), **held, **{name: getattr(self, name).copy() for name in _ARRAYS}}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._devices = list(state["devices"])
        self._sequences, self._tokens = list(state["sequences"]), list(state["tokens"])
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))
        self._changed, self._pool_due = set(), False
        self._renew()

    def _renew(self) -> None:
        """What follows from the devices alone."""
        self._least_step_s = LEAST_STEP_SHARE * np.array([device.step_s for device in self._devices])
        kinds: dict[tuple[float, IterationModel], list[int]] = {}
        for g, device in enumerate(self._devices):
            kinds.setdefault((device.step_s, device.iteration), []).append(g)
        self._alike = list(kinds.values())
        models = [device.iteration for device in self._devices]
        self.per_sequence_s = np.array([model.per_sequence_s for model in models])
        self.per_kv_token_s = np.array([model.per_kv_token_s for model in models])
        names = ("per_sequence_s", "per_kv_token_s", "per_prompt_token_s")
        means = [sum(getattr(model, name) for model in models) / max(len(models), 1) for name in names]
        self.mean_added_s = np.array(means)
        alone = [device.step_s - _added_s(device, device.slots - 1, device.kv_tokens / 2) for device in self._devices]
        # with one short sequence, by the first estimate: what was learned since also stands for prompts in iterations
        self.idle_step_s = np.maximum(np.array(alone), self._least_step_s)

    def _settle(self) -> None:
        for g in self._changed:
            self._added_s[g] = self._added_now_s(g)
        self._changed.clear()
        if self._pool_due:
            self._pool_idle_steps()
            self._pool_due = False
        np.maximum(self._idle_s + self._added_s, self._least_step_s, out=self._step_s)

    def _pool_idle_steps(self) -> None:
        """Devices of one kind share the mean of what they learned, unless one is clearly off it.

        What is learned has noise, and noise would send everything to the device that happens to look fastest.
        """
        for alike in self._alike:
            own = self._own_idle_s[alike]
            mean = own.sum() / len(alike)
            self._idle_s[alike] = np.where(np.abs(own - mean) <= ALIKE_SHARE * abs(mean), mean, own)

    def _added_now_s(self, g: int) -> float:
        return _added_s(self._devices[g], self._sequences[g], self._tokens[g])


_ARRAYS = ("_step_s", "_own_idle_s", "_idle_s", "_added_s")


def _added_s(device: Device, sequences: float, kv_tokens: float) -> float:
    """What decoding sequences and their KV tokens add to an iteration, in seconds."""
    return device.iteration.per_sequence_s * sequences + device.iteration.per_kv_token_s * kv_tokens
