"""What every waiting request is worth and costs now, on every device. Who is admitted is not decided here.

Notation
    symbol     meaning                                                        shape          unit        paper
    s, ell     prompt tokens and calibrated mean output tokens                (J,)           tokens      s_j, o-hat_j
    u          prompt tokens that the device has not cached                   (J, G)         tokens
    Q, R       prefill backlog and prefill rate of a device                   (G,)           tokens, /s
    F          time to the first token on a device, (Q + u) / R + tau         (J, G)         s           0
    L          time that a life on a device lasts, F + ell * tau              (J, G)         s           o-hat_j
    V          reward of starting now                                         (J, G)         reward      r_{j,g,k}
    c          price of a life that starts now                                (G, J)         reward      a'p, eq. 10
    e          what that life would cost at the uncongested price             (J,)           reward
    A          what is lost by not starting now                               (J, G)         reward
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.kernels.records import Speeds
from olp_ray.core.ledger import Ledger
from olp_ray.core.policies.base import View
from olp_ray.core.policies.settings import OnlineLPSettings
from olp_ray.core.reward import Terms, start_value, thresholds, weights_of
from olp_ray.core.types import Objective


@dataclass(frozen=True, slots=True)
class Appraisal:
    """Requests are in queue order; key is A / (min c + eps0 e), nan while there are no prices."""

    terms: Terms
    length_tokens: np.ndarray  # (J,) calibrated median, for feasibility
    prompt_tokens: np.ndarray  # (J,)
    first_token_s: np.ndarray  # (G, J) or (1, J) F
    life_s: np.ndarray  # (G, J) L
    mean_life_s: np.ndarray  # (J,) over devices
    value: np.ndarray  # (G, J) V
    cost: np.ndarray  # (G, J) c
    volume: np.ndarray  # (J,) what a life takes of a mean device, by scarcity
    lost: np.ndarray  # (J,) A on the device where it is largest
    key: np.ndarray  # (J,)
    log_error: float  # of predicted lengths: keys that differ by less are equal


def appraise(
    view: View,
    now_s: float,
    objective: Objective,
    settings: OnlineLPSettings,
    weights: np.ndarray,
    tables: np.ndarray,
    base_price: float,
    scarcity: np.ndarray,
) -> Appraisal:
    """Worth and price of every waiting request.

    weights (J,) multiplies the reward, tables are the prices in force, scarcity (3,) weighs a life's shares of slots,
    KV tokens and iteration time into one volume.
    """
    ledger, queue = view.ledger, view.waiting
    prompt = np.array(queue.prompt_tokens)
    output = view.calibration.mean_length(queue.predicted_output_tokens, prompt)
    own = thresholds(objective, queue.slo_e2e_s, queue.slo_ttft_s)
    terms = Terms(np.maximum(now_s - queue.arrival_s, 0.0), output, weights, *own)
    uncached = uncached_tokens(view)
    devices = len(ledger.devices)
    alike = len(uncached) == 1 and _are_alike(ledger)
    speeds = Speeds(ledger.step_s, ledger.prefill.backlog(now_s), ledger.prefill.rate_tokens_per_s)
    starts = kernels.worth.starts(
        weights_of(objective),
        settings.window_s(queue.arrival_s),
        settings.urgency_s,
        view.tick_s,
        *(terms.waited_s, terms.output_tokens, terms.weight, terms.e2e_threshold_s, terms.ttft_threshold_s),
        uncached,
        Speeds(*(array[:1] for array in speeds)) if alike else speeds,
    )
    cost = kernels.pricing.costs_from_now(tables, settings.bucket_s, uncached, starts.life_s, output)
    volume = scarcity @ resource_shares(ledger, prompt, output, starts.mean_life_s)
    key = np.full(len(prompt), np.nan)
    if base_price > 0:
        key = starts.lost / (cost.min(axis=0) + settings.regular_price * base_price * volume)
    return Appraisal(
        terms,
        view.calibration.median_length(queue.predicted_output_tokens, prompt),
        prompt,
        starts.first_token_s,
        np.repeat(starts.life_s, devices, axis=0) if alike else starts.life_s,
        starts.mean_life_s,
        np.repeat(starts.value, devices, axis=0) if alike else starts.value,
        cost,
        volume,
        starts.lost,
        key,
        view.calibration.log_error,
    )


def uncached_tokens(view: View) -> np.ndarray:
    """u, (G, J), or (1, J) while nothing is known of any prefix."""
    prompt = view.waiting.prompt_tokens
    if view.prefixes.is_empty:
        return np.array(prompt[None])
    return np.ascontiguousarray(prompt - view.cached_tokens().T)


def _are_alike(ledger: Ledger) -> bool:
    """Whether a life takes as long on every device, so that worth has to be found for one only."""
    step_s = ledger.step_s
    return bool((step_s == step_s[0]).all() and np.isinf(ledger.prefill.rate_tokens_per_s).all())


def fresh_value(objective: Objective, settings: OnlineLPSettings, found: Appraisal) -> np.ndarray:
    """What the requests would be worth on each device if they had only come, (G, J)."""
    terms = replace(found.terms, waited_s=np.zeros(len(found.terms.waited_s)))
    return start_value(objective, settings.reward_window_s, terms, 0.0, found.first_token_s, found.life_s)


def resource_shares(ledger: Ledger, prompt: np.ndarray, output: np.ndarray, life_s: np.ndarray) -> np.ndarray:
    """What lives take of a mean device, (3, J): slot seconds per slot, KV-token seconds per KV token, and seconds of
    iteration time added."""
    model = ledger.mean_iteration
    added_s = model.per_sequence_s, model.per_kv_token_s, model.per_prompt_token_s
    return kernels.worth.resource_shares(ledger.slots, ledger.kv_tokens, *added_s, np.array(prompt), output, life_s)
