"""Every CSV format as its publisher ships it, compressed ones too, and errors that name the place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from olp_ray.errors import WorkloadError
from olp_ray.workload import read_trace

COMMON = "arrived_at,num_prefill_tokens,num_decode_tokens,tenant_id,priority\n0.5,10,20,ann,1\n2.0,30,40,bob,0\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
)
AZURE_2024 = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2024-05-12 00:00:00.001163+00:00,2162,5\n"
    "2024-05-12 00:00:00.251163+00:00,2399,6\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n"
    "45,GPT-4,1087,230,1317,Conversation log\n"
    "118,ChatGPT,417,0,417,Conversation log\n"
)
SPLITWISE = (
    "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n0,2,0,0.25,1,100,7\n"
)


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_common_format_with_extras(tmp_path: Path) -> None:
    frame = read_trace(write(tmp_path, COMMON))
    assert frame["arrived_at"].tolist() == [0.0, 1.5]
    assert frame["num_prefill_tokens"].tolist() == [10, 30]
    assert frame["num_decode_tokens"].tolist() == [20, 40]
    assert frame["tenant"].tolist() == ["ann", "bob"]
    assert frame["priority"].tolist() == [1, 0]


@pytest.mark.parametrize(("text", "gap_s"), [(AZURE, 4.314579), (AZURE_2024, 0.25)])
def test_azure_formats(tmp_path: Path, text: str, gap_s: float) -> None:
    frame = read_trace(write(tmp_path, text))
    assert frame["arrived_at"].tolist() == pytest.approx([0.0, gap_s])
    assert frame["num_decode_tokens"].min() >= 5


def test_burstgpt_leaves_out_failures(tmp_path: Path) -> None:
    frame = read_trace(write(tmp_path, BURSTGPT))
    assert frame["arrived_at"].tolist() == [0.0, 40.0]
    assert frame["num_decode_tokens"].tolist() == [18, 230]
    assert frame["request_class"].tolist() == ["ChatGPT", "GPT-4"]


def test_vidur_lengths_with_their_derived_columns(tmp_path: Path) -> None:
    text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69.85\n2015,156,2171,12.9\n"
    assert read_trace(write(tmp_path, text))["num_decode_tokens"].tolist() == [54, 156]


def test_mooncake_hashes_in_csv(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens,hash_ids_512\n0,1000,5,0;14\n1,20,5,\n"
    assert read_trace(write(tmp_path, text))["prefix_blocks"].tolist() == [(0, 14), ()]


def test_servegen_and_vtc_name_their_tenants(tmp_path: Path) -> None:
    for column in ("client_id", "tenant_id"):
        text = f"arrived_at,num_prefill_tokens,num_decode_tokens,{column}\n0,604,96,21\n0,645,16,35\n"
        assert read_trace(write(tmp_path, text))["tenant"].tolist() == ["21", "35"]


def test_splitwise_format(tmp_path: Path) -> None:
    frame = read_trace(write(tmp_path, SPLITWISE))
    assert frame[["num_prefill_tokens", "num_decode_tokens"]].to_numpy().tolist() == [[100, 7]]


def test_lengths_alone_come_one_per_second(tmp_path: Path) -> None:
    frame = read_trace(write(tmp_path, "num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n9,1\n"))
    assert frame["arrived_at"].tolist() == [0.0, 1.0, 2.0]


def test_rows_are_put_in_order_of_time(tmp_path: Path) -> None:
    text = "arrived_at,num_prefill_tokens,num_decode_tokens\n3,1,1\n1,2,2\n"
    assert read_trace(write(tmp_path, text))["num_prefill_tokens"].tolist() == [2, 1]


@pytest.mark.parametrize("codec", ["gz", "zst"])
def test_compressed_files(tmp_path: Path, codec: str) -> None:
    path = tmp_path / f"trace.csv.{codec}"
    data = COMMON.encode()
    path.write_bytes(gzip.compress(data) if codec == "gz" else pa.compress(data, codec="zstd", asbytes=True))
    assert len(read_trace(path)) == 2


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + COMMON.replace("\n", "\r\n").encode())
    assert len(read_trace(path)) == 2


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (COMMON + "x,1,1,c,0\n", r"line 4, column 'arrived_at': expected a number >= 0, got 'x'"),
        (COMMON + "3,1,0,c,0\n", r"line 4, column 'num_decode_tokens': expected a whole number >= 1, got '0'"),
        (COMMON + "3,1.5,1,c,0\n", r"line 4, column 'num_prefill_tokens': expected a whole number >= 0, got '1.5'"),
        (COMMON + "3,,1,c,0\n", r"line 4, column 'num_prefill_tokens': expected a whole number >= 0, got nothing"),
        (AZURE + "yesterday,1,1\n", r"line 4, column 'TIMESTAMP': expected a date and time like .*, got 'yesterday'"),
        (
            "arrived_at,num_prefill_tokens,num_decode_tokens,hash_ids_512\n0,9,1,4;7\n1,9,1,4;x\n",
            r"line 3, column 'hash_ids_512': expected numbers like 4;17;5, got '4;x'",
        ),
        (COMMON + "3,1,1,c,101\n", r"line 4, column 'priority': expected a whole number from -100 to 100, got '101'"),
        (COMMON + "3,1,1,c,0,9\n", r"not a readable CSV: .*Expected 5 fields in line 4, saw 6"),
        ("a,b\n1,2\n", r"line 1: columns \['a', 'b'\] are of no known format; expected arrived_at"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n", r"at least one request, got none"),
        ("", "not a readable CSV"),
    ],
)
def test_errors_name_the_place(tmp_path: Path, text: str, error: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(WorkloadError, match=error) as raised:
        read_trace(path)
    assert str(path) in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"none\.csv: No such file"):
        read_trace(tmp_path / "none.csv")


def test_compressed_files_are_known_by_their_first_bytes(tmp_path: Path) -> None:
    for name, data in (
        ("a", gzip.compress(COMMON.encode())),
        ("b", pa.compress(COMMON.encode(), "zstd", asbytes=True)),
    ):
        (tmp_path / name).write_bytes(data)
        assert len(read_trace(tmp_path / name)) == 2


def test_text_that_is_not_utf8_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(COMMON.encode() + b"3,1,1,\xff,0\n")
    with pytest.raises(WorkloadError, match=r"t\.csv, line 4: expected UTF-8 text"):
        read_trace(tmp_path / "t.csv")


def test_a_broken_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_text(COMMON)
    with pytest.raises(WorkloadError, match="expected UTF-8 text in gzip"):
        read_trace(path)
