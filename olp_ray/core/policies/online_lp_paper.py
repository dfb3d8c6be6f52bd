"""The paper's own policy: Algorithms 1 and 2 over a fixed horizon of absolute slots, for reproduction (Appendix B.1).

Prices are updated from recorded columns, every waiting request is weighed against them on every device, and margins
above 0 are admitted greedily. Settings switch what the paper leaves open. Beyond the horizon T the paper says nothing:
what still waits then starts in order of arrival, and what fits no device that is there is passed over. Until then a
request whose reward has fallen to 0 waits; rejection (`core.policies.rejection`) turns it away instead, and goes on
beyond the horizon and while no device is there. Under the paper's weights nothing is rejected, as in the paper.

Notation
    symbol     meaning                                                        shape          paper (Sections 2, 3)
    k, T       now and the end of the horizon, in seconds (periods: step 1)                  same
    s, n       prompt tokens and predicted output, in whole tokens            (J,)           s_j, ceil(o-hat_j)
    r          reward of starting now                                         (J, G)         r_{j,g,k}
    a          column: slots and KV tokens of a life that starts now          (J G, 6)       a_{(j,g,k)}
    margin     normalised r - a'p                                             (J, G)         Delta_j(g)
    d          remaining capacity per request still expected                  (G, 2, L)      d_k (eq. 11)

The residents' remaining capacity is read from the ledger: predicted lengths, corrected by what has been decoded.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from olp_ray.core.admission import admit_in_order, no_admission, plain_candidates
from olp_ray.core.calibration import Calibration
from olp_ray.core.forecast import Forecast, expected_occupancy
from olp_ray.core.history import ArrivalHistory
from olp_ray.core.paper_prices import Column, PaperPrices
from olp_ray.core.policies.base import PolicyStep, View
from olp_ray.core.policies.central import check_version
from olp_ray.core.policies.outlook import NextDecision, Outlook, Worth, look_ahead, no_devices
from olp_ray.core.policies.rejection import RejectionRule
from olp_ray.core.policies.settings import PolicySettings
from olp_ray.core.reward import thresholds
from olp_ray.core.types import Objective

LEVEL = 0.5  # plans use predictions as they are; a resident past its prediction is taken at the median of what is left
_EDGE = 1e-9  # a slot that begins within this share of its length has begun


class OnlineLPPaper:
    name = "online_lp_paper"
    holding = True

    def __init__(self, settings: PolicySettings) -> None:
        settings.paper_lp.check()
        self._settings = settings.paper_lp
        self._prefill_ahead_s = settings.online_lp.prefill_ahead_s
        self._rejection = RejectionRule(settings)
        self._objective = settings.objective
        self._arrivals = ArrivalHistory(1, self._settings.rate_window)
        self._slots = math.floor(self._settings.horizon_s / self._settings.slot_s + _EDGE) + 1
        self._prices = PaperPrices(self._slots, self._settings.history)
        self._uncalibrated = Calibration()
        self._updated = -1  # slot of the last update
        self._updates = 0
        self._rotation = 0

    @property
    def prices(self) -> PaperPrices:
        """Prices in force and the recorded columns, for tests and reports."""
        return self._prices

    def step(self, view: View, now_s: float, rng: np.random.Generator) -> PolicyStep:
        """One pass of Algorithm 1's loop; prices move once per slot, and only while something waits."""
        changed = self._arrivals.add(view.arrivals, np.ones(len(view.arrivals)), view.tick_s, now_s)
        if changed:
            self._prices.forget_before(self._slot(self._arrivals.changed_s))  # Section 4.3
        if not view.waiting:
            return PolicyStep(rate_changed=changed)
        forecast = Forecast(view.ledger, self._uncalibrated, now_s, LEVEL, self._prefill_ahead_s)
        refused = self._rejection.look(view, forecast, self._objective, now_s)
        slot = self._slot(now_s)
        if view.ledger.devices and slot < self._slots:
            placed = self._by_margin(view, forecast, refused.any_reason, now_s, slot, rng)
            wake_s = (slot + 1) * self._settings.slot_s
        else:
            placed = self._first_come(view, forecast, refused.any_reason)
            wake_s = forecast.next_room_s(now_s)
        self._rotation += len(placed)
        rejected = list(self._rejection.reject_all(view, refused.codes, self._objective))
        started = [view.assign(i, g) for i, g in placed]
        left = len(rejected) + len(started) < len(view.waiting)
        wake_s = min(wake_s, refused.next_s) if left else math.inf
        return PolicyStep((*rejected, *started), next_wake_s=wake_s, rate_changed=changed)

    def reconfigure(self, objective: Objective) -> None:
        """Recorded rewards are of the old objective: the history begins anew."""
        self._objective = objective
        self._prices.forget()

    def snapshot(self) -> dict[str, Any]:
        return {
            "version": 1,
            "arrivals": self._arrivals.snapshot(),
            "prices": self._prices.snapshot(),
            "updated": self._updated,
            "updates": self._updates,
            "rotation": self._rotation,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        check_version(state)
        self._arrivals.restore(state["arrivals"])
        self._prices.restore(state["prices"])
        self._updated, self._updates = int(state["updated"]), int(state["updates"])
        self._rotation = int(state["rotation"])

    def worth(self, view: View, now_s: float) -> Worth | None:
        """Normalised rewards and the prices of columns (eq. 10); None after the horizon."""
        slot = self._slot(now_s)
        if slot >= self._slots:
            return None
        prices = self._prices_of(view)
        reward, columns = self._columns(view, now_s, slot)
        slot_price, kv_price = (part.reshape(reward.shape).T for part in prices.cost_by_resource(columns))
        nothing = np.full(len(reward), np.nan)
        worth = normalised(reward, self._settings.reward_normaliser, self._largest(reward))
        return Worth(worth, slot_price, kv_price, np.zeros_like(slot_price), nothing, nothing, nothing)

    def outlook(self, view: View, now_s: float) -> Outlook:
        """The decision of `step` at the prices in force, on a copy of the plans."""
        forecast = Forecast(view.ledger, self._uncalibrated, now_s, LEVEL, self._prefill_ahead_s)
        refused = self._rejection.look(view, forecast, self._objective, now_s).any_reason
        if not view.ledger.devices:
            return no_devices(refused)
        queue, worth = view.waiting, self.worth(view, now_s)
        if worth is None:
            mixed, order, open_to = False, np.flatnonzero(~refused), self._may_hold(view)
            placed = self._first_come(view, forecast, refused)
        else:
            mixed = self._settings.mixed
            margin = np.where(self._may_hold(view), worth.reward.T - (worth.slot_price + worth.kv_price), -np.inf).T
            margin[refused] = -np.inf
            order = np.argsort(-margin.max(axis=1), kind="stable")
            order = order[~refused[order]]
            open_to = margin.T > 0
            placed = self._admit(view, forecast, margin)
        lengths = np.ceil(queue.predicted_output_tokens) + mixed
        decision = NextDecision(order, open_to, queue.prompt_tokens - mixed, lengths, placed)
        plain = dataclasses.replace(view, calibration=self._uncalibrated)
        return look_ahead(plain, now_s, LEVEL, self._prefill_ahead_s, decision)

    # -- one step -----------------------------------------------------------------------------------------------

    def _by_margin(
        self, view: View, forecast: Forecast, refused: np.ndarray, now_s: float, slot: int, rng: np.random.Generator
    ) -> list[tuple[int, int]]:
        """Lines 7-16: who starts where, as queue and device indices."""
        self._follow(view)
        reward, columns = self._columns(view, now_s, slot)
        largest = self._largest(reward)
        begins = slot > self._updated
        if begins:
            self._update(view, now_s, slot, largest, rng)  # line 7
        margin = self._margin(view, reward, columns, largest)  # line 8
        margin[refused] = -np.inf
        if begins and self._settings.recording != "admitted":
            self._record_best(margin, columns)  # line 9
        placed = self._admit(view, forecast, margin)  # lines 10-16
        if self._settings.recording == "admitted":
            devices = len(view.ledger.devices)
            self._prices.record(columns[[i * devices + g for i, g in placed]])
        return placed

    def _slot(self, now_s: float) -> int:
        """The slot of a time; what is before the first counts as in it."""
        return max(math.floor(now_s / self._settings.slot_s + _EDGE), 0)

    def _follow(self, view: View) -> None:
        """Prices of the devices there are, with mem_scale = 1 / max M (Appendix B.2)."""
        self._prices.follow([device.id for device in view.ledger.devices], self._kv_scale(view))

    def _kv_scale(self, view: View) -> float:
        return 1.0 / max(float(view.ledger.kv_tokens.max()), 1.0)

    def _largest(self, reward: np.ndarray) -> float:
        """The largest reward over history and waiting requests."""
        return max(float(self._prices.columns[:, Column.REWARD].max(initial=0.0)), float(reward.max()))

    def _columns(self, view: View, now_s: float, slot: int) -> tuple[np.ndarray, np.ndarray]:
        """r of every pair, (J, G), and its column, (J G, 6), request by request (Section 3.1)."""
        settings, queue, step_s = self._settings, view.waiting, view.ledger.step_s
        output = np.ceil(queue.predicted_output_tokens)
        tokens = output + (queue.prompt_tokens if settings.count_prompt_tokens else 0.0)
        own = thresholds(self._objective, queue.slo_e2e_s, queue.slo_ttft_s)
        reward = fixed_horizon_reward(
            self._objective,
            settings.horizon_s,
            now_s,
            queue.arrival_s[:, None],
            output[:, None] + settings.mixed,
            tokens[:, None],
            step_s * settings.mixed,
            step_s,
            own[0][:, None],
            own[1][:, None],
        )
        length = np.ceil((output[:, None] + settings.mixed) * step_s / settings.slot_s - _EDGE)
        growth = np.broadcast_to(settings.slot_s / step_s, reward.shape)
        columns = np.empty((*reward.shape, len(Column)))
        columns[:, :, Column.DEVICE] = np.arange(len(step_s))
        columns[:, :, Column.START] = slot
        columns[:, :, Column.STOP] = np.minimum(slot + length, self._slots)
        columns[:, :, Column.LEVEL] = queue.prompt_tokens[:, None] + growth - settings.mixed  # eq. 1, Appendix A
        columns[:, :, Column.GROWTH] = growth
        columns[:, :, Column.REWARD] = reward
        return reward, columns.reshape(-1, len(Column))

    def _update(self, view: View, now_s: float, slot: int, largest: float, rng: np.random.Generator) -> None:
        """Line 7 (eq. 9): Algorithm 2, or the exact solution of eq. 7."""
        settings, ledger, prices = self._settings, view.ledger, self._prices
        self._updated = slot
        self._updates += 1
        ahead = prices.slots_ahead(slot)
        occupied = expected_occupancy(ledger, self._uncalibrated, now_s, settings.slot_s, ahead)
        remain = np.maximum(ledger.capacity_ahead(now_s, settings.slot_s, ahead) - occupied, 0.0)
        remain[:, 1] *= prices.kv_scale
        scarcity = remain / max(1.0, self._requests_expected(view, now_s, slot))  # eq. 11
        rewards = normalised(prices.columns[:, Column.REWARD], settings.reward_normaliser, largest)
        if settings.exact and len(prices.columns) and ahead:
            from olp_ray.core.exact_prices import solve_packing  # scipy, only when asked for

            found = solve_packing(prices.saa(slot, scarcity, rewards))
            prices.set_ahead(slot, found.prices.reshape(scarcity.shape))
            return
        rate = settings.learning_rate
        if settings.learning_rate_decay == "sqrt":
            rate /= math.sqrt(self._updates)
        prices.update(slot, scarcity, rewards, rate, settings.rounds, settings.batch, rng)

    def _requests_expected(self, view: View, now_s: float, slot: int) -> float:
        """n-hat_remain: those that wait and those still to arrive, or one per slot that is left."""
        settings = self._settings
        if settings.remaining == "slots":
            return float(self._slots - slot)
        rate = self._arrivals.rate_per_s(now_s, settings.slot_s)
        return len(view.waiting) + rate * max(settings.horizon_s - now_s, 0.0)

    def _margin(self, view: View, reward: np.ndarray, columns: np.ndarray, largest: float) -> np.ndarray:
        """Line 8: Delta_j(g), (J, G); -inf where a request may not run."""
        worth = normalised(reward, self._settings.reward_normaliser, largest)
        margin = worth - self._prices.cost(columns).reshape(reward.shape)
        return np.where(self._may_hold(view).T, margin, -np.inf)

    def _may_hold(self, view: View) -> np.ndarray:
        """(G, J) bool; see `View.may_hold`."""
        return view.may_hold(view.waiting.prompt_tokens, np.ceil(view.waiting.predicted_output_tokens))

    def _record_best(self, margin: np.ndarray, columns: np.ndarray) -> None:
        """Line 9 and Appendix B.4: the column of the largest margin, also when that is not above 0."""
        best = int(margin.argmax())
        lowest = 0.0 if self._settings.recording == "best_positive" else -np.inf
        if margin.flat[best] > lowest:
            self._prices.record(columns[best : best + 1])

    def _fits(self, view: View, forecast: Forecast) -> np.ndarray:
        """a <= b in every slot up to T, (J, G): KV only grows between planned ends, so its peaks are there."""
        lengths = np.ceil(view.waiting.predicted_output_tokens) + self._settings.mixed
        prompt = view.waiting.prompt_tokens - self._settings.mixed
        devices = range(len(view.ledger.devices))
        return np.stack([forecast.fits(g, prompt, lengths) for g in devices], axis=1)

    def _admit(self, view: View, forecast: Forecast, margin: np.ndarray) -> list[tuple[int, int]]:
        """Lines 10-16: by decreasing margin above 0 wherever the residual allows (eq. 4), each request once (eq. 5).

        What does not fit once never fits later in the pass, so taking the best pair that still fits is the sorted
        pass of the paper. Ties: arrival, id, then the emptier device, then a rotating one.
        """
        if not forecast.takes_more.any():
            return []
        lengths = np.ceil(view.waiting.predicted_output_tokens) + self._settings.mixed
        prompt = view.waiting.prompt_tokens - self._settings.mixed
        fits = self._fits(view, forecast)
        score = np.where(fits & (margin > 0), margin, -np.inf)
        placed: list[tuple[int, int]] = []
        while (best := score.max(initial=-np.inf)) > -np.inf:
            j = int((score.max(axis=1) == best).argmax())
            devices = np.flatnonzero(score[j] == best)
            rotated = (devices - self._rotation - len(placed)) % score.shape[1]
            g = int(devices[np.lexsort((rotated, forecast.utilisation[devices]))[0]])
            forecast.admit(g, float(prompt[j]), float(lengths[j]))
            placed.append((j, g))
            score[j] = -np.inf
            score[~forecast.fits(g, prompt, lengths), g] = -np.inf
        return placed

    def _first_come(self, view: View, forecast: Forecast, refused: np.ndarray) -> list[tuple[int, int]]:
        """Beyond the horizon: in order of arrival, each waits for the one before it if that has a place at all."""
        if not forecast.takes_more.any():
            return []
        queue = view.waiting
        order = np.flatnonzero(~refused & view.has_a_place(queue.prompt_tokens))
        wanted = plain_candidates(queue.prompt_tokens, np.ceil(queue.predicted_output_tokens), self._may_hold(view))
        before = no_admission(len(view.ledger.devices), self._rotation)
        return admit_in_order(forecast, wanted, order, before, head_of_line=True).placed

    def _prices_of(self, view: View) -> PaperPrices:
        """Prices of the view's devices; a copy where those in force are of other devices."""
        ids = tuple(device.id for device in view.ledger.devices)
        if ids == self._prices.device_ids:
            return self._prices
        prices = copy.deepcopy(self._prices)
        prices.follow(ids, self._kv_scale(view))
        return prices


def fixed_horizon_reward(
    objective: Objective,
    horizon_s: float,
    now_s: float,
    arrival_s: np.ndarray,
    service_steps: np.ndarray,
    counted_tokens: np.ndarray,
    first_token_s: np.ndarray,
    step_s: np.ndarray,
    e2e_threshold_s: np.ndarray,
    ttft_threshold_s: np.ndarray,
) -> np.ndarray:
    """r_{j,g,k} of Section 3.1, (J, G), with steps of step_s in place of periods: T - k + 1 is the time left.

    service_steps is o-hat (1 + o-hat in a mixed batch), counted_tokens what throughput counts, first_token_s 0 (one
    step in a mixed batch).
    """
    left_s = np.maximum(horizon_s + step_s - now_s, 0.0)
    life_s = service_steps * step_s
    waited_s = now_s - arrival_s
    done_share = np.minimum(left_s / life_s, 1.0)
    return (
        objective.throughput * counted_tokens * done_share
        + objective.e2e * np.maximum(left_s - life_s, 0.0)  # eq. 2
        + objective.ttft * np.maximum(left_s - first_token_s, 0.0)  # eq. 3
        + objective.qps
        + objective.tail_e2e * (waited_s + life_s < e2e_threshold_s)
        + objective.tail_ttft * (waited_s + first_token_s < ttft_threshold_s)
    )


def normalised(reward: np.ndarray, rule: str, largest: float) -> np.ndarray:
    """r^norm (Appendix B.2): divided by the largest reward seen, or as it is; clipped at 1 unless "none"."""
    if rule == "none":
        return reward
    return np.minimum(reward / largest if rule == "largest" and largest > 0 else reward, 1.0)
