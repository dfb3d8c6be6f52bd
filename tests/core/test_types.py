import dataclasses
import math

import pytest

from olp_ray.core import types
from olp_ray.core.types import AssignmentKey, Device, Objective, Request, RequestKey, Stage
from olp_ray.errors import RequestError

LONG = [10**400, 10**5000]  # no floats, and more digits than can be shown
REQUEST = {"id": "r", "arrival_s": 0.0, "prompt_tokens": 1, "predicted_output_tokens": 1.0}
DEVICE = {"id": "g", "slots": 1, "kv_tokens": 1, "step_s": 0.1}
OBJECTIVE = dict.fromkeys(("throughput", "e2e", "ttft", "qps", "tail_e2e", "tail_ttft"), 1.0) | {
    "e2e_threshold_s": 9.0,
    "ttft_threshold_s": 1.0,
}


@pytest.mark.parametrize(
    ("record", "fields", "name", "values"),
    [
        (Request, REQUEST, "id", [""]),
        (Request, REQUEST, "arrival_s", [math.nan, math.inf, 1e200, -1.1e12, *LONG]),
        (Request, REQUEST, "prompt_tokens", [-1, math.nan, math.inf, *LONG]),
        (Request, REQUEST, "max_output_tokens", [0, -1, math.nan, *LONG]),
        (
            Request,
            REQUEST,
            "predicted_quantiles",
            [
                ((0.5, 3.0), (0.4, 5.0)),
                ((0.5, 3.0), (0.7, 2.0)),
                ((0.0, 3.0),),
                ((1.0, 3.0),),
                ((0.5, 0.5),),
                ((0.5, math.nan),),
                ((0.5, math.inf),),
                ((0.5, 10**400),),
                ((0.5, 10**5000),),
            ],
        ),
        (Request, REQUEST, "predicted_output_tokens", [0.5, 0, -3, math.nan, math.inf, *LONG]),
        (Request, REQUEST, "priority", [-101, 101, 10**400, 10**5000, math.nan]),
        (Request, REQUEST, "slo_ttft_s", [0.0, -1.0, math.nan, *LONG]),
        (Request, REQUEST, "slo_e2e_s", [0.0, -1.0, math.nan, *LONG]),
        (Device, DEVICE, "slots", [0, -1, *LONG]),
        (Device, DEVICE, "kv_tokens", [0, *LONG]),
        (Device, DEVICE, "block_tokens", [0, *LONG]),
        (Device, DEVICE, "step_s", [0.0, -1.0, math.nan, math.inf, *LONG]),
        (Device, DEVICE, "prefill_tokens_per_s", [0.0, -1.0, math.nan, *LONG]),
        (Objective, OBJECTIVE, "priority_factor", [*LONG, 0.0, -1.0, math.nan, 0.06, 16.1, 1e9]),
        (
            Objective,
            OBJECTIVE,
            "class_weights",
            [(("a", 0.0),), (("a", math.nan),), (("a", 10**5000),), (("a", 9e-7),), (("a", 1.1e6),)],
        ),
        (Objective, OBJECTIVE, "tenant_fairness", [-1.0, math.nan, *LONG]),
        (Objective, OBJECTIVE, "e2e", [-1.0, math.nan, math.inf, *LONG]),
        (Objective, OBJECTIVE, "ttft_threshold_s", [0.0, -1.0, math.nan, *LONG]),
        (Objective, OBJECTIVE, "e2e_threshold_s", [0.0]),
    ],
)
def test_values_outside_their_domain_are_refused_by_name(record, fields, name, values):
    record(**fields)
    for value in values:
        with pytest.raises(RequestError) as caught:
            record(**{**fields, name: value})
        assert (name in str(caught.value)) or record is Objective
        assert "expected" in str(caught.value) or "must be" in str(caught.value)


def test_rising_quantiles_are_taken():
    quantiles = ((0.1, 1.0), (0.5, 7.0), (0.9, 7.0))
    assert Request(**REQUEST, predicted_quantiles=quantiles).predicted_quantiles == quantiles


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(RequestError, match="all zero"):
        Objective(0, 0, 0, 0, 0, 0, 9.0, 1.0)


def test_weights_are_in_the_order_of_the_paper():
    assert Objective(1, 2, 3, 4, 5, 6, 9.0, 1.0).weights == (1, 2, 3, 4, 5, 6)


def test_records_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Request(**REQUEST).prompt_tokens = 3


def test_keys_name_request_and_attempt():
    request = Request(**REQUEST, stage=Stage.DECODE)
    assert request.key == RequestKey("r", Stage.DECODE)
    assert AssignmentKey("r", Stage.DECODE, "g", 2, 1).request_key == request.key


@pytest.mark.parametrize(
    ("models", "stages", "model", "stage", "runs"),
    [
        ((), Stage, "", Stage.MIXED, True),
        ((), Stage, "m", Stage.MIXED, True),
        (("m",), Stage, "", Stage.DECODE, True),
        (("m",), Stage, "m", Stage.DECODE, True),
        (("m",), Stage, "n", Stage.DECODE, False),
        (("m",), (Stage.PREFILL,), "m", Stage.DECODE, False),
        ((), (Stage.PREFILL,), "", Stage.PREFILL, True),
    ],
)
def test_a_device_runs_its_models_and_stages(models, stages, model, stage, runs):
    device = Device(**DEVICE, models=frozenset(models), stages=frozenset(stages))
    assert device.can_run(Request(**REQUEST, model=model, stage=stage)) == runs


def test_all_of_the_contract_is_imported_from_one_place():
    parts = (types.decisions, types.devices, types.events, types.objective, types.requests)
    records = {
        name
        for part in parts
        for name, item in vars(part).items()
        if isinstance(item, type) and item.__module__ == part.__name__
    }
    assert records | {"Event", "Decision"} == set(types.__all__)
    assert set(types.Event.__args__) | set(types.Decision.__args__) <= {getattr(types, name) for name in records}
