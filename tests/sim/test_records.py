"""The frozen tables: exact columns, and a round trip through parquet that keeps types and version."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from olp_ray.sim.records import SCHEMA_VERSION, DecisionRow, RequestRow, columns, frame, read_parquet, write_parquet


def test_request_columns_of_version_1() -> None:
    assert SCHEMA_VERSION == 1
    assert columns(RequestRow) == {
        "request_id": "string",
        "arrival_s": "float64",
        "prompt_tokens": "int64",
        "output_tokens": "int64",
        "predicted_output_tokens": "float64",
        "request_class": "string",
        "model": "string",
        "tenant": "string",
        "session": "string",
        "priority": "int64",
        "slo_ttft_s": "float64",
        "slo_e2e_s": "float64",
        "status": "string",
        "reject_reason": "string",
        "device_id": "string",
        "prefilled_s": "float64",
        "assigned_s": "float64",
        "start_s": "float64",
        "first_token_s": "float64",
        "finish_s": "float64",
        "generated_tokens": "int64",
        "attempts": "int64",
        "preemptions": "int64",
        "cached_prompt_tokens": "int64",
    }


def test_decision_columns_of_version_1() -> None:
    assert list(columns(DecisionRow)) == [
        "time_s", "request_id", "stage", "decision", "device_id", "incarnation", "attempt", "waited_s",
        "reject_reason", "limit", "knob", "retry_after_s",
    ]  # fmt: skip


def test_round_trip_keeps_types_and_version(tmp_path: Path) -> None:
    table = frame([RequestRow("a", 0.5, 3, 4, 4.5, "default", "", "t", "", 1)], RequestRow)
    path = tmp_path / "requests.parquet"
    write_parquet(table, path)
    pd.testing.assert_frame_equal(read_parquet(path), table)
    assert pq.read_schema(path).metadata[b"olp_ray_schema_version"] == b"1"


def test_an_empty_table_has_its_columns() -> None:
    assert list(frame([], DecisionRow).columns) == list(columns(DecisionRow))
