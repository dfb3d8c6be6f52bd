"""Which process of each device is there, ahead of the router's ledger by the events that it has not taken in yet.

Several ingresses see the same engine come and go: here the second to tell it changes nothing. No requests live here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from olp_ray.core.types import Device, DeviceJoined, DeviceLost, Event


class Processes:
    """By device id: the incarnation that is there, and the last one that was lost."""

    def __init__(self, devices: Iterable[Device]) -> None:
        self._there = {device.id: device.incarnation for device in devices}
        self._lost: dict[str, int] = {}

    def news(self, event: Event) -> Sequence[Event]:
        """What the router is to be told when this event is reported."""
        if isinstance(event, DeviceLost):
            return self.lost(event)
        return self.up(event.device) if isinstance(event, DeviceJoined) else [event]

    def up(self, device: Device) -> list[DeviceLost | DeviceJoined]:
        """What the router is to be told when this process is there; it takes the place of an older one."""
        known = self._there.get(device.id)
        if known is not None and known >= device.incarnation:
            return []
        older = [] if known is None else self.lost(DeviceLost(device.id, known))
        self._there[device.id] = device.incarnation
        return [*older, DeviceJoined(device)]

    def lost(self, loss: DeviceLost) -> list[DeviceLost]:
        """What the router is to be told: nothing when it was told before."""
        if self._there.get(loss.device_id) == loss.incarnation:
            del self._there[loss.device_id]
            self._lost[loss.device_id] = loss.incarnation
            return [loss]
        return [] if self.is_gone(loss.device_id, loss.incarnation) else [loss]

    def is_there(self, device_id: str, incarnation: int) -> bool:
        return self._there.get(device_id) == incarnation

    def is_gone(self, device_id: str, incarnation: int) -> bool:
        """Whether this process was lost, or another one has taken its place."""
        there = self._there.get(device_id, -1)
        return there != incarnation and max(there, self._lost.get(device_id, -1)) >= incarnation
