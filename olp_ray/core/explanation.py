"""What the router answers when it is asked about a request: plain frozen records, stable reasons, never prose.

Here live only the records. How they are found is `core.explain`; what each policy would do next is its `outlook`.

Times are on the driver's clock (s); rewards and prices are in the objective's unit of reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from olp_ray.core.types import Stage


class RequestState(StrEnum):
    WAITING = "waiting"  # in the central queue
    ASSIGNED = "assigned"  # sent to a device whose engine has not started it
    RUNNING = "running"


class WaitReason(StrEnum):
    """What stands between a waiting request and a start on a device; declared from the lightest to the heaviest.

    BEHIND and RESERVED appear only where nothing else does: the request would start there if it waited alone. All
    others stop it whoever else waits. Where a device is closed to a request the gate is not looked at.
    """

    POLICY_NOT_READY = "policy_not_ready"  # no decision was made with this state yet; the next one starts it
    BEHIND = "behind_higher_rank"  # requests that come first take the room, or one that fits nowhere holds up the rest
    RESERVED = "reserved_device"  # kept for a request of higher rank that would have to wait longer otherwise
    PRICE = "gated_by_price"
    PREFILL_BUSY = "prefill_busy"  # prompts sent already keep the device busy for as long as prompts are sent ahead
    KV_LATER = "kv_would_not_fit_later"  # a planned peak during its life exceeds the KV tokens
    KV_NOW = "kv_does_not_fit_now"
    NO_FREE_SLOT = "no_free_slot"
    TOO_SMALL = "device_too_small"  # not even empty could it hold the request to its planned end, and another could
    REJECTED_NEXT = "rejected_next"  # it is too late or too dear: the next decision rejects it
    DEVICE_DRAINING = "device_draining"
    NOT_ELIGIBLE = "not_eligible"  # the device does not run this model or stage
    DEVICE_LOST = "device_lost"  # no device is left in the fleet


class StartRule(StrEnum):
    """Where `Explanation.expected_start_s` comes from."""

    NEXT_DECISION = "next_decision"
    RESERVATION = "reservation"  # when the device that is kept for it has room, by the plans of its residents
    EARLIEST_FIT = "earliest_fit"  # it is the first that waits: the least `earliest_start_s` of the devices open to it
    ESTIMATED_BY_RANK = "estimated_by_rank"  # when as many are planned to end as start by its turn (`policies.turns`)
    ALREADY_THERE = "already_there"  # assigned or running
    UNKNOWN = "unknown"  # no device is open to it, or a price has to fall


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """One request on one device. Prices are those of its whole life there; None where the policy has none.

    reasons are all that stand in the way, heaviest first; none: it could start here. earliest_start_s is when it would
    fit if nothing else were admitted before, by the present plans of the residents. It is no bound: a plan is a
    quantile of what remains, and most residents end before it. None: never as things are, or the device is not open to
    it.
    """

    device_id: str
    reasons: tuple[WaitReason, ...]
    reward: float | None
    slot_price: float | None
    kv_price: float | None
    prefill_price: float | None
    earliest_start_s: float | None

    @property
    def price(self) -> float | None:
        """c: price of the life over all resources."""
        if self.slot_price is None or self.kv_price is None or self.prefill_price is None:
            return None
        return self.slot_price + self.kv_price + self.prefill_price

    @property
    def margin(self) -> float | None:
        """V - c."""
        return None if self.reward is None or self.price is None else self.reward - self.price


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything the router knows about one request.

    now_s is when it was asked, on the clock of all other times here. reason is the heaviest on the device that is
    nearest to taking it; None unless it waits. rank counts from 0 in the order of the next decision; None where it has
    none. option_value is y_j = max(0, max over devices of V - c) (paper, Section 3.2), not_waiting what is lost by not
    starting now, key its ratio to the price, level the rank class of the key; None where the policy has none. An
    assigned or running request is valued as it was when assigned, at the prices now in force; planned_end_s is the
    median of what remains of it.
    """

    request_id: str
    stage: Stage
    state: RequestState
    now_s: float
    waited_s: float
    device_id: str | None = None
    reason: WaitReason | None = None
    rank: int | None = None
    reward: float | None = None
    option_value: float | None = None
    not_waiting: float | None = None
    key: float | None = None
    level: int | None = None
    expected_start_s: float | None = None
    start_rule: StartRule = StartRule.UNKNOWN
    decoded_tokens: float | None = None
    planned_end_s: float | None = None
    devices: tuple[DeviceAnswer, ...] = ()

    def on(self, device_id: str) -> DeviceAnswer:
        """The answer for one device. Raises KeyError for a device that is not in the fleet."""
        for answer in self.devices:
            if answer.device_id == device_id:
                return answer
        raise KeyError(device_id)

    @property
    def fits_on(self) -> tuple[str, ...]:
        """Devices with room for it for its whole life, whoever else waits and whatever it costs."""
        free = {WaitReason.BEHIND, WaitReason.RESERVED, WaitReason.PRICE}
        return tuple(answer.device_id for answer in self.devices if free.issuperset(answer.reasons))
