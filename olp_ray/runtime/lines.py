"""Which ingresses are there: the number of each one's newest report, and how long nothing has been heard of it.

Only names, numbers and times live here; what is done when one has left is `live_router`'s.
"""

from __future__ import annotations

GRACE_S = 10.0  # an ingress that nothing is heard of for so long has left
BEAT_S = 1.0  # each says something at least this often
_LONGEST_STEP_S = 2.0  # two checks lie further apart only when this process stood still, in which nobody is heard


class Lines:
    """Times are on the router's clock."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._silent_s: dict[str, float] = {}
        self._checked_s = 0.0

    def heard(self, ingress_id: str) -> None:
        """It is there."""
        self._silent_s[ingress_id] = 0.0

    def number(self, ingress_id: str) -> int | None:
        """The number of its newest report; None when it has not reported, or has left."""
        return self._numbers.get(ingress_id)

    def reported(self, ingress_id: str, number: int) -> bool:
        """Whether a report of this number, which has come now, is the newest."""
        self.heard(ingress_id)
        if number <= self._numbers.get(ingress_id, -1):
            return False
        self._numbers[ingress_id] = number
        return True

    def left(self, now_s: float) -> list[str]:
        """Those that have been silent for `GRACE_S`; each is named once."""
        passed_s = min(now_s - self._checked_s, _LONGEST_STEP_S)
        self._checked_s = now_s
        for ingress_id in self._silent_s:
            self._silent_s[ingress_id] += passed_s
        gone = sorted(name for name, silent_s in self._silent_s.items() if silent_s > GRACE_S)
        for ingress_id in gone:
            del self._silent_s[ingress_id]
            self._numbers.pop(ingress_id, None)
        return gone
