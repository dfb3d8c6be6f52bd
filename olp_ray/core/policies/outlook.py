"""What a policy's next decision would do with every waiting request, and what stops those that it leaves.

Here live the records that a policy fills from the very pass that decides, and the reasons that every policy shares:
eligibility, slots, prefill, KV tokens, rank. Worth and gates are the policy's own.

Notation
    symbol   meaning                                                       shape       unit
    J, G     waiting requests in queue order, devices
    s, n     prompt tokens and planned length of a request                 (J,)        tokens
    fits     whether the request has room on the device, waiting alone     (G, J)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from olp_ray.core.explanation import WaitReason
from olp_ray.core.forecast import Forecast
from olp_ray.core.policies.base import View

REASONS = tuple(WaitReason)
_CLOSED = frozenset(
    {WaitReason.NOT_ELIGIBLE, WaitReason.DEVICE_DRAINING, WaitReason.REJECTED_NEXT, WaitReason.TOO_SMALL}
)


@dataclass(frozen=True, slots=True, eq=False)
class Worth:
    """What requests are worth and cost; nan where a policy has no such thing."""

    reward: np.ndarray  # (J, G)
    slot_price: np.ndarray  # (G, J) of the whole life
    kv_price: np.ndarray  # (G, J)
    prefill_price: np.ndarray  # (G, J)
    not_waiting: np.ndarray  # (J,)
    key: np.ndarray  # (J,)
    level: np.ndarray  # (J,)


@dataclass(frozen=True, slots=True, eq=False)
class NextDecision:
    """The pass that would decide now, carried out on a copy of the plans.

    order are queue indices as they are looked at; those that are rejected are not in it. open_to says where the
    policy's own rule (the gate) would permit each a start if it were the first. reserved: device -> (queue index,
    steps until it begins).
    """

    order: np.ndarray
    open_to: np.ndarray  # (G, J) bool
    prompt_tokens: np.ndarray  # (J,) as the pass counts them
    length_tokens: np.ndarray  # (J,)
    placed: list[tuple[int, int]]
    reserved: dict[int, tuple[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """rank is -1 for what the next decision rejects. stops is indexed by `REASONS`."""

    rank: np.ndarray  # int64 (J,)
    stops: np.ndarray  # (reasons, G, J) bool
    starts: frozenset[int]  # queue indices
    reserved: dict[int, tuple[int, float]]  # queue index -> (device index, seconds until it begins)
    plans: Plans | None  # None: requests are sent on whatever the device holds

    def reasons(self, g: int, j: int) -> tuple[WaitReason, ...]:
        """What stops request j on device g, heaviest first."""
        return tuple(REASONS[k] for k in np.flatnonzero(self.stops[:, g, j])[::-1])

    @property
    def first_left(self) -> int | None:
        """Queue index of the first in rank that the next decision leaves waiting."""
        order = np.argsort(self.rank, kind="stable")
        return next((j for j in order.tolist() if self.rank[j] >= 0 and j not in self.starts), None)

    def fits_in_s(self, g: int, j: int) -> float:
        """Seconds until request j would fit on device g if only what starts now were admitted; inf if never."""
        if _CLOSED & set(self.reasons(g, j)):
            return float("inf")
        return 0.0 if self.plans is None else self.plans.fits_in_s(g, j)


@dataclass(frozen=True, slots=True, eq=False)
class Plans:
    """What devices are going to hold once what starts now has been admitted."""

    forecast: Forecast
    prompt_tokens: np.ndarray  # (J,)
    length_tokens: np.ndarray  # (J,)
    prefill_wait_s: np.ndarray  # (G,) until the device takes more prompts
    step_s: np.ndarray  # (G,)

    def fits_in_s(self, g: int, j: int) -> float:
        """Seconds until request j fits on device g; inf if never."""
        steps = self.forecast.earliest_fit(g, float(self.prompt_tokens[j]), float(self.length_tokens[j]))
        return max(steps * float(self.step_s[g]), float(self.prefill_wait_s[g]))

    def ends_s(self, g: int) -> list[float]:
        """Seconds until each of those on device g is planned to end, soonest first."""
        return [float(steps * self.step_s[g]) for steps in self.forecast.planned_ends(g)]


def send_on(view: View) -> Outlook:
    """The outlook of a policy that sends every request on at once: one waits only while no device may run it."""
    count = len(view.waiting)
    if not view.ledger.devices:
        return no_devices(np.zeros(count, dtype=bool))
    stops = _closed(view)
    starts = frozenset(np.flatnonzero((~stops.any(axis=0)).any(axis=0)).tolist())
    return Outlook(np.arange(count), stops, starts, {}, None)


def no_devices(refused: np.ndarray) -> Outlook:
    """The outlook of a policy that holds requests while no device is there; refused (J,) bool are those it rejects."""
    stops = np.zeros((len(REASONS), 0, len(refused)), dtype=bool)
    return Outlook(np.where(refused, -1, np.cumsum(~refused) - 1), stops, frozenset(), {}, None)


def look_ahead(view: View, now_s: float, level: float, prefill_ahead_s: float, decision: NextDecision) -> Outlook:
    """The reasons of `decision`, by the forecast that it used (level and prefill_ahead_s are the policy's)."""
    forecast = Forecast(view.ledger, view.calibration, now_s, level, prefill_ahead_s)
    prompt, length = decision.prompt_tokens, decision.length_tokens
    rank = np.full(len(view.waiting), -1, dtype=np.int64)
    rank[decision.order] = np.arange(len(decision.order))
    prefill_wait_s = _prefill_wait_s(view, now_s, prefill_ahead_s)
    stops = _closed(view)
    too_small = view.too_small(prompt, length)
    mark(stops, WaitReason.TOO_SMALL, too_small)
    is_open = ~stops.any(axis=0) & (rank >= 0)
    mark(stops, WaitReason.PRICE, is_open & ~decision.open_to)
    mark(stops, WaitReason.REJECTED_NEXT, rank < 0)
    mark(stops, WaitReason.NO_FREE_SLOT, (view.ledger.slots - forecast.occupied_slots < 1)[:, None])
    mark(stops, WaitReason.PREFILL_BUSY, (prefill_wait_s > 0)[:, None])
    kv_now, kv_later = _kv_stops(view, now_s, level, prefill_ahead_s, prompt, length)
    mark(stops, WaitReason.KV_NOW, kv_now & ~too_small)
    mark(stops, WaitReason.KV_LATER, kv_later & ~too_small)
    alone = np.logical_not(stops.any(axis=0))
    starts = frozenset(j for j, _ in decision.placed)
    alone[:, list(starts)] = False
    for j, g in decision.placed:
        forecast.admit(g, float(prompt[j]), float(length[j]))
    left = np.stack([forecast.fits(g, prompt, length) for g in range(len(stops[0]))])
    kept = np.zeros_like(alone)
    for g, (holder, steps) in decision.reserved.items():
        kept[g] = (rank > rank[holder]) & (length > max(1.0, steps))
    mark(stops, WaitReason.RESERVED, alone & kept)
    mark(stops, WaitReason.BEHIND, alone & ~(kept & left))
    step_s = view.ledger.step_s
    reserved = {j: (g, steps * float(step_s[g])) for g, (j, steps) in decision.reserved.items()}
    return Outlook(rank, stops, starts, reserved, Plans(forecast, prompt, length, prefill_wait_s, step_s))


def mark(stops: np.ndarray, reason: WaitReason, where: np.ndarray) -> None:
    """Add a reason wherever `where` says, broadcast to (G, J)."""
    stops[REASONS.index(reason)] |= where


def _closed(view: View) -> np.ndarray:
    """Stops of devices that may not run a request or take no new ones, (reasons, G, J)."""
    devices = view.ledger.devices
    can_run = [[device.can_run(entry.request) for entry in view.waiting] for device in devices]
    stops = np.zeros((len(REASONS), len(devices), len(view.waiting)), dtype=bool)
    mark(stops, WaitReason.NOT_ELIGIBLE, ~np.array(can_run, dtype=bool).reshape(len(devices), -1))
    mark(stops, WaitReason.DEVICE_DRAINING, view.ledger.draining[:, None])
    return stops


def _prefill_wait_s(view: View, now_s: float, prefill_ahead_s: float) -> np.ndarray:
    """(G,) seconds until the device takes more prompts."""
    prefill = view.ledger.prefill
    rate = prefill.rate_tokens_per_s
    finite = np.isfinite(rate)
    limit = np.where(finite, rate * prefill_ahead_s, np.inf)
    return np.maximum(prefill.backlog(now_s) - limit, 0.0) / rate


def _kv_stops(
    view: View, now_s: float, level: float, prefill_ahead_s: float, prompt: np.ndarray, length: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(KV tokens are short now, only at a later peak), both (G, J), if slots and prefill were without limit."""
    ledger = view.ledger
    free = Forecast(ledger, view.calibration, now_s, level, prefill_ahead_s)
    free.lift_limits()
    fits = np.stack([free.fits(g, prompt, length) for g in range(len(ledger.devices))])
    padding = np.array([device.block_tokens - 1 for device in ledger.devices])
    needed = (free.kv_now + 1 + ledger.count + padding)[:, None] + prompt  # the engine's own check: s + 1 + b more
    now = ~fits & (needed > ledger.kv_tokens[:, None])
    return now, ~fits & ~now
