"""Answers about single requests, put together from a policy's outlook, its prices and the ledger. Nothing is changed.

Waiting requests are answered from the pass that would decide now; assigned and running ones by the policy's own
appraisal, as they were when assigned. Which rule decides is the policy's business.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from olp_ray.core.explanation import DeviceAnswer, Explanation, RequestState, StartRule, WaitReason
from olp_ray.core.numbers import is_finite, shown
from olp_ray.core.policies.base import Policy, View
from olp_ray.core.policies.outlook import REASONS, Outlook, Worth
from olp_ray.core.policies.turns import planned_turns
from olp_ray.core.queue import WaitingQueue
from olp_ray.core.types import AssignmentKey, Request
from olp_ray.core.types.requests import MOST_TIME_S
from olp_ray.errors import EventError

_SEVERITY = {reason: k for k, reason in enumerate(REASONS)}
_CLOSED = frozenset({WaitReason.NOT_ELIGIBLE, WaitReason.DEVICE_DRAINING, WaitReason.TOO_SMALL})


def explain(
    view: View, policy: Policy, now_s: float, request_id: str | None = None, most: int | None = None
) -> tuple[Explanation, ...]:
    """Every request that waits, in queue order, then every one on a device; or the stages of one id, if known.

    most bounds how many are answered, since each costs a look at every device. Raises `EventError` for a time that is
    not finite.
    """
    if not is_finite(now_s):
        raise EventError(f"now_s is {shown(now_s)}; expected a finite number")
    waiting = [j for j, entry in enumerate(view.waiting) if request_id in (None, entry.request.id)][:most]
    held = [(key, request) for key, request in view.ledger if request_id in (None, request.id)]
    held = held[: None if most is None else most - len(waiting)]
    return (*_waiting(view, policy, now_s, waiting), *_on_devices(view, policy, now_s, held))


def _waiting(view: View, policy: Policy, now_s: float, wanted: list[int]) -> Iterator[Explanation]:
    if not wanted:
        return
    outlook = policy.outlook(view, now_s)
    if not view.ledger.devices:
        yield from (_stranded(view.waiting[j].request, outlook.rank[j] < 0, now_s) for j in wanted)
        return
    worth = policy.worth(view, now_s)
    ids = [device.id for device in view.ledger.devices]
    first = outlook.first_left
    turns = planned_turns(outlook, int(outlook.rank[wanted].max()))
    for j in wanted:
        request = view.waiting[j].request
        answers = []
        for g, device_id in enumerate(ids):
            in_s = outlook.fits_in_s(g, j)
            earliest_s = now_s + in_s if np.isfinite(in_s) else None
            answers.append(_device_answer(device_id, outlook.reasons(g, j), worth, g, j, earliest_s))
        rank = int(outlook.rank[j])
        expected_s, rule = _expected(outlook, answers, turns, j, first, now_s)
        plain = Explanation(
            request.id,
            request.stage,
            RequestState.WAITING,
            now_s,
            now_s - request.arrival_s,
            reason=WaitReason.POLICY_NOT_READY if j in outlook.starts else _nearest(answers),
            rank=None if rank < 0 else rank,
            expected_start_s=expected_s,
            start_rule=rule,
            devices=tuple(answers),
        )
        yield _with_worth(plain, worth, j)


def _on_devices(
    view: View, policy: Policy, now_s: float, held: list[tuple[AssignmentKey, Request]]
) -> Iterator[Explanation]:
    """Each is valued by itself: what others on devices are worth must not depend on who is asked for."""
    ledger = view.ledger
    for key, request in held:
        g, resident = ledger.row(key.device_id), ledger.resident(key, now_s)
        worth = policy.worth(_at_assignment(view, request, key.attempt, now_s - resident.assigned_s), now_s)
        decoded, predicted = np.array([resident.decoded_tokens]), np.array([resident.predicted_tokens])
        prompt = np.array([request.prompt_tokens])
        left = view.calibration.remaining(decoded, predicted, prompt, 0.5)
        plain = Explanation(
            request.id,
            request.stage,
            RequestState.RUNNING if resident.started else RequestState.ASSIGNED,
            now_s,
            resident.assigned_s - request.arrival_s,
            device_id=key.device_id,
            start_rule=StartRule.ALREADY_THERE,
            decoded_tokens=resident.decoded_tokens,
            planned_end_s=now_s + float(left[0] * ledger.step_s[g]),
            devices=(_device_answer(key.device_id, (), worth, g, 0, None),),
        )
        yield _with_worth(plain, worth, 0)


def _at_assignment(view: View, request: Request, attempt: int, on_device_s: float) -> View:
    """The view in which the request alone waits: an arrival moved forward by the time on the device gives the wait,
    and so the worth, at the assignment."""
    queue = WaitingQueue()
    arrival_s = min(max(request.arrival_s + on_device_s, -MOST_TIME_S), MOST_TIME_S)
    queue.add(dataclasses.replace(request, arrival_s=arrival_s), attempt)
    return dataclasses.replace(view, waiting=queue)


def _stranded(request: Request, refused: bool, now_s: float) -> Explanation:
    """A request of a fleet without devices: it waits in no order."""
    reason = WaitReason.REJECTED_NEXT if refused else WaitReason.DEVICE_LOST
    waited_s = now_s - request.arrival_s
    return Explanation(request.id, request.stage, RequestState.WAITING, now_s, waited_s, reason=reason)


def _device_answer(
    device_id: str,
    reasons: tuple[WaitReason, ...],
    worth: Worth | None,
    g: int,
    j: int,
    earliest_start_s: float | None,
) -> DeviceAnswer:
    if worth is None:
        return DeviceAnswer(device_id, reasons, None, None, None, None, earliest_start_s)
    return DeviceAnswer(
        device_id,
        reasons,
        float(worth.reward[j, g]),
        float(worth.slot_price[g, j]),
        float(worth.kv_price[g, j]),
        float(worth.prefill_price[g, j]),
        earliest_start_s,
    )


def _with_worth(plain: Explanation, worth: Worth | None, j: int) -> Explanation:
    """With reward, option value, value of not waiting, key and level, over the devices that may run the request."""
    if worth is None:
        return plain
    usable = [answer for answer in plain.devices if not _CLOSED & set(answer.reasons)]
    level = worth.level[j]
    return dataclasses.replace(
        plain,
        reward=max((answer.reward for answer in usable if answer.reward is not None), default=None),
        option_value=max([0.0, *(answer.margin for answer in usable if answer.margin is not None)]),
        not_waiting=_number(worth.not_waiting[j]),
        key=_number(worth.key[j]),
        level=int(level) if np.isfinite(level) else None,
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _nearest(answers: list[DeviceAnswer]) -> WaitReason:
    """The heaviest reason on the device whose reasons are lightest."""
    return min((answer.reasons for answer in answers), key=lambda found: [_SEVERITY[reason] for reason in found])[0]


def _expected(
    outlook: Outlook, answers: list[DeviceAnswer], turns: dict[int, float], j: int, first: int | None, now_s: float
) -> tuple[float | None, StartRule]:
    if j in outlook.starts:
        return now_s, StartRule.NEXT_DECISION
    if j in outlook.reserved:
        _, in_s = outlook.reserved[j]
        return now_s + in_s, StartRule.RESERVATION
    if j == first:
        open_to = [answer for answer in answers if WaitReason.PRICE not in answer.reasons]
        starts_s = [answer.earliest_start_s for answer in open_to if answer.earliest_start_s is not None]
        if starts_s:
            return min(starts_s), StartRule.EARLIEST_FIT
    if j in turns:
        return now_s + turns[j], StartRule.ESTIMATED_BY_RANK
    return None, StartRule.UNKNOWN
