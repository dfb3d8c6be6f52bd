"""Whom a restarted router waits for: the ingresses of its snapshot, which know what has happened since.

Only names, times, reports and what is submitted meanwhile are kept here; what it means is `live_router`'s.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from olp_ray.runtime.messages import Report, Submission


class Reunion:
    """Holds the router back until every ingress has reported, though not for longer than hold_s."""

    def __init__(self) -> None:
        self._missing: set[str] = set()
        self._reports: dict[str, tuple[Report, float]] = {}
        self._postponed: list[tuple[str, Submission, float]] = []
        self._hold_until_s = -math.inf
        self._grace_until_s = -math.inf

    def begin(self, ingress_ids: Iterable[str], now_s: float, hold_s: float, grace_s: float) -> None:
        """From now on wait for these; one that has not reported after grace_s has left."""
        self._missing = set(ingress_ids)
        self._hold_until_s, self._grace_until_s = now_s + hold_s, now_s + grace_s

    def heard(self, ingress_id: str, report: Report, now_s: float) -> None:
        """Keep the report until `take_reports`."""
        self._missing.discard(ingress_id)
        self._reports[ingress_id] = report, now_s

    def postpone(self, ingress_id: str, submissions: Iterable[Submission], now_s: float) -> None:
        """Keep what is submitted while nothing should be decided, until `take_postponed`."""
        self._postponed += [(ingress_id, submission, now_s) for submission in submissions]

    def held_until_s(self, now_s: float) -> float | None:
        """Until when nothing should be decided; None when it may be now."""
        return self._hold_until_s if self._missing and now_s < self._hold_until_s else None

    def take_reports(self, now_s: float) -> dict[str, Report]:
        """Reports by ingress that have come since the last call; what waits has waited on meanwhile."""
        reports, self._reports = self._reports, {}
        return {name: _aged(report, now_s - heard_s) for name, (report, heard_s) in reports.items()}

    def take_postponed(self, now_s: float) -> list[tuple[str, Submission]]:
        """Submissions and whose they are, in order; they have waited on meanwhile."""
        postponed, self._postponed = self._postponed, []
        return [(name, _later(submission, now_s - came_s)) for name, submission, came_s in postponed]

    def given_up(self, now_s: float) -> list[str]:
        """Ingresses whose time is over; each is named once."""
        if now_s < self._grace_until_s:
            return []
        gone, self._missing = sorted(self._missing), set()
        return gone


def _aged(report: Report, passed_s: float) -> Report:
    return dataclasses.replace(report, waiting=tuple(_later(each, passed_s) for each in report.waiting))


def _later(submission: Submission, passed_s: float) -> Submission:
    return dataclasses.replace(submission, waited_s=submission.waited_s + passed_s)
