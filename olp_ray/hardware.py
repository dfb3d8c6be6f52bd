"""Device kinds that the simulator, the emulated engine and the fleet notation know, in one table.

Iteration time in ms of a batch with B decode sequences, P prefill tokens, KV cached tokens in all, and
pairs = sum of p * (prefix + p / 2) over prefill chunks p:

    t = c0 + max(w, c_tok * (B + P)) + c_kv * KV + c_pairs * pairs + c_batch * B

Source of the constants: least-squares fits to kernel measurements published with NVIDIA AIConfigurator (Apache-2.0);
over the points of those measurements the mean error is 4 to 7 % (12 % for l40s-70b), at single points up to 36 %; see
docs/simulator.md. They hold no host overhead; current engines add about 1.5 ms a step. KV capacity: 0.9 of the GPU's
memory less weights and activations, in tokens. See NOTICE.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RooflineConstants:
    """Constants of the iteration time above, in ms."""

    c0: float
    w: float
    c_tok: float
    c_kv: float
    c_pairs: float
    c_batch: float


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A GPU (or tensor-parallel group) serving one model."""

    name: str
    gpu: str
    model: str
    tensor_parallel: int
    kv_tokens: int
    slots: int
    block_tokens: int
    prefill_chunk_tokens: int
    host_overhead_ms: float
    roofline: RooflineConstants


def _kind(name: str, gpu: str, model: str, tp: int, kv_tokens: int, *constants: float) -> DeviceKind:
    return DeviceKind(name, gpu, model, tp, kv_tokens, 128, 16, 512, 1.5, RooflineConstants(*constants))


DEVICE_KINDS: dict[str, DeviceKind] = {
    kind.name: kind
    for kind in (
        _kind("a100-7b", "A100-80", "llama2-7b", 1, 118_137, 7.2059, 3.0092, 0.051316, 3.0834e-4, 3.7204e-6, 0.0),
        _kind("a100-8b", "A100-80", "llama3-8b", 1, 450_379, 9.0212, 2.9964, 0.053169, 8.1504e-5, 3.0002e-6, 3.6166e-3),
        _kind("a100-70b", "A100-80", "llama2-70b", 4, 499_581, 20.6596, 8.2175, 0.151917, 6.1751e-5, 3.775e-6, 0.0),
        _kind("h100-7b", "H100-80", "llama2-7b", 1, 118_137, 3.146, 3.0979, 0.018331, 1.6607e-4, 9.2167e-7, 3.7544e-3),
        _kind("h100-8b", "H100-80", "llama3-8b", 1, 450_379, 3.5588, 3.1432, 0.018504, 4.0308e-5, 7.832e-7, 5.8924e-3),
        _kind(
            "h100-70b", "H100-80", "llama2-70b", 4, 499_581, 10.1892, 5.8486, 0.056446, 2.768e-5, 1.3013e-6, 1.3873e-3
        ),
        _kind("l40s-7b", "L40S-48", "llama2-7b", 1, 54_086, 13.0153, 4.4561, 0.061586, 7.66e-4, 3.2432e-6, 0.0),
        _kind(
            "l40s-8b", "L40S-48", "llama3-8b", 1, 194_174, 12.6743, 11.0562, 0.062921, 2.0077e-4, 2.1253e-6, 1.3365e-2
        ),
        _kind("l40s-70b", "L40S-48", "llama2-70b", 4, 89_654, 51.7887, 5.1316, 1.154594, 9.5382e-5, 7.6114e-6, 0.0),
    )
}
