"""Smallest volume: the request that will hold the fewest KV token-steps first, s o + o^2 / 2; ties by arrival.

Smith's rule where the job is the area that its growing KV cache covers (paper eq. 1 summed over a life); the memory
model is that of Jaillet et al., "Online Scheduling for LLM Inference with KV Cache Constraints", 2025.
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.policies.base import View
from olp_ray.core.policies.central import CentralQueue


class SmallestVolume(CentralQueue):
    name = "smallest_volume"

    def rank(self, view: View, now_s: float) -> np.ndarray:
        output = view.waiting.predicted_output_tokens
        return np.argsort(view.waiting.prompt_tokens * output + output**2 / 2, kind="stable")
