"""What a simulation writes down while it runs: rows of the log tables, in memory. It changes nothing in the run."""

from __future__ import annotations

import math

from olp_ray.core.types import Assign, Decision, Reject, Request
from olp_ray.sim.engine import Sequence
from olp_ray.sim.records import Counters, DecisionRow, RequestRow, Status, TimelineRow, frame
from olp_ray.sim.replica import Replica
from olp_ray.sim.result import Result


class RunLog:
    """Rows by request id, decisions in order, and samples of the devices when timeline is on."""

    def __init__(self, timeline: bool) -> None:
        self.counters = Counters()
        self._rows: dict[str, RequestRow] = {}
        self._decisions: list[DecisionRow] = []
        self._timeline: list[TimelineRow] | None = [] if timeline else None
        self._waiting = 0

    def true_output_tokens(self, request_id: str) -> int:
        return self._rows[request_id].output_tokens

    def arrived(self, request: Request, output_tokens: int) -> None:
        self._waiting += 1
        self._rows[request.id] = RequestRow(
            request.id,
            request.arrival_s,
            request.prompt_tokens,
            output_tokens,
            request.predicted_output_tokens,
            request.request_class,
            request.model,
            request.tenant,
            request.session,
            request.priority,
            math.nan if request.slo_ttft_s is None else request.slo_ttft_s,
            math.nan if request.slo_e2e_s is None else request.slo_e2e_s,
        )

    def decided(self, now_s: float, decision: Decision) -> None:
        self._waiting -= 1
        self.counters.decisions += 1
        request = decision.request
        row = self._rows[request.id]
        waited_s = now_s - request.arrival_s
        if isinstance(decision, Assign):
            key = decision.key
            row.assigned_s, row.device_id, row.attempts = now_s, key.device_id, row.attempts + 1
            self._decisions.append(
                DecisionRow(
                    now_s, key.request_id, key.stage, "assign", key.device_id, key.incarnation, key.attempt, waited_s,
                    "", "", "", math.nan,
                )
            )  # fmt: skip
        else:
            row.status, row.reject_reason = Status.REJECTED, decision.reason
            self._decisions.append(_rejection(now_s, waited_s, decision))

    def started(self, sequence: Sequence, now_s: float, first_token: bool) -> None:
        row = self._rows[sequence.key.request_id]
        row.status = Status.UNFINISHED
        if sequence.preemptions == 0:
            row.start_s = now_s
        row.cached_prompt_tokens = sequence.cached_tokens
        if first_token and math.isnan(row.first_token_s):
            row.first_token_s = now_s

    def first_token(self, sequence: Sequence, now_s: float) -> None:
        row = self._rows[sequence.key.request_id]
        if math.isnan(row.first_token_s):
            row.first_token_s = now_s

    def prefilled(self, request_id: str, now_s: float, done: bool) -> None:
        """A prefill pool computed the prompt and the first token; done if that was all."""
        row = self._rows[request_id]
        row.prefilled_s = row.first_token_s = now_s
        if done:
            self._waiting -= 1
            row.status, row.start_s, row.finish_s, row.generated_tokens = Status.FINISHED, now_s, now_s, 1

    def lost(self, replica: Replica) -> None:
        """The device died: what it held starts over, and waits at the router again."""
        for sequence in (*replica.running.values(), *replica.waiting):
            self._waiting += 1
            row = self._rows[sequence.key.request_id]
            row.first_token_s = row.prefilled_s

    def preempted(self, sequence: Sequence) -> None:
        self.counters.preemptions += 1
        self._rows[sequence.key.request_id].preemptions += 1

    def finished(self, sequence: Sequence, now_s: float) -> None:
        row = self._rows[sequence.key.request_id]
        row.status, row.finish_s, row.generated_tokens = Status.FINISHED, now_s, sequence.generated

    def sample(self, now_s: float, device: str, replica: Replica) -> None:
        if self._timeline is not None:
            self._timeline.append(
                TimelineRow(
                    now_s,
                    device,
                    len(replica.running),
                    len(replica.waiting),
                    replica.kv_tokens(now_s),
                    self._waiting,
                )
            )

    def result(self, end_s: float, busy_s: dict[str, float]) -> Result:
        """Everything so far."""
        return Result(
            requests=frame(self._rows.values(), RequestRow),
            decisions=frame(self._decisions, DecisionRow),
            timeline=None if self._timeline is None else frame(self._timeline, TimelineRow),
            counters=self.counters,
            end_s=end_s,
            busy_s=busy_s,
        )


def _rejection(now_s: float, waited_s: float, decision: Reject) -> DecisionRow:
    request = decision.request
    return DecisionRow(
        now_s, request.id, request.stage, "reject", "", -1, -1, waited_s, decision.reason, decision.limit,
        decision.knob, decision.retry_after_s,
    )  # fmt: skip
