"""What every waiting request is worth and costs now, on every device: what kernels are given for it. Who is
admitted is not decided here.

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

import numpy as np

from olp_ray.core import kernels
from olp_ray.core.kernels.records import Rules
from olp_ray.core.ledger import Ledger
from olp_ray.core.policies.base import View
from olp_ray.core.policies.rejection import RejectionRule
from olp_ray.core.policies.settings import OnlineLPSettings
from olp_ray.core.reward import weights_of
from olp_ray.core.types import Objective


def rules_of(objective: Objective, settings: OnlineLPSettings, rejection: RejectionRule) -> Rules:
    """Constants of a decision as kernels take them."""
    own = {name: float(getattr(settings, name)) for name in Rules._fields[2:-1]}
    return Rules(weights_of(objective), rejection.limits(objective), **own, reservation=settings.reservation)


def uncached_tokens(view: View) -> np.ndarray:
    """u, (G, J), or (1, J) while nothing is known of any prefix."""
    if view.prefixes.is_empty:
        return view.waiting.columns[:1, : len(view.waiting)]
    return np.ascontiguousarray(view.waiting.prompt_tokens - view.cached_tokens().T)


def resource_shares(ledger: Ledger, prompt: np.ndarray, output: np.ndarray, life_s: np.ndarray) -> np.ndarray:
    """What lives take of a mean device, (3, J): slot seconds per slot, KV-token seconds per KV token, and seconds of
    iteration time added."""
    return kernels.worth.resource_shares(
        ledger.slots, ledger.kv_tokens, ledger.mean_added_s, np.array(prompt), output, life_s
    )
