"""What prices say about a life on a device, by prefix tables.

Notation
    symbol   meaning                                                        shape         unit
    G, N     devices, buckets
    t        time from now                                                  (R, M)        s
"""

from __future__ import annotations

import numpy as np

from olp_ray.core.kernels.compiler import kernel
from olp_ray.core.kernels.records import (
    KV_INTEGRAL,
    KV_PRICE,
    SLOT_INTEGRAL,
    SLOT_PRICE,
    TIMED_KV_INTEGRAL,
)


@kernel
def integrals(tables: np.ndarray, bucket_s: float, t: np.ndarray) -> np.ndarray:
    """Integrals from 0 to t of p_slot, p_kv and u * p_kv(u), (3, G, M); beyond the last bucket its price goes on.

    tables is (G, 5, N + 1), t (G, M) or (1, M): the same times on every device.
    """
    devices, _, width = tables.shape
    found = np.empty((3, devices, t.shape[1]))
    for g in range(devices):
        table = tables[g]
        times = t[g] if len(t) > 1 else t[0]
        for i in range(len(times)):
            bucket = int(min(times[i] / bucket_s, width - 1))
            edge = bucket * bucket_s
            beyond = times[i] - edge
            found[0, g, i] = table[SLOT_PRICE, bucket] * beyond + table[SLOT_INTEGRAL, bucket]
            found[1, g, i] = table[KV_PRICE, bucket] * beyond + table[KV_INTEGRAL, bucket]
            timed = table[KV_PRICE, bucket] * (beyond * (times[i] + edge) / 2)
            found[2, g, i] = timed + table[TIMED_KV_INTEGRAL, bucket]
    return found
