"""An output folder is taken over whole: what an earlier run wrote goes, what anyone else wrote stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from olp_ray.errors import ConfigError
from olp_ray.sweep.outputs import claim_folder

OLD = ("runs/a-seed0/requests.parquet", "runs/b-seed0/requests.parquet", "results.parquet")


def written(folder: Path, files: tuple[str, ...]) -> None:
    claim_folder(folder, files)
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")


def test_a_later_run_removes_exactly_what_the_earlier_one_wrote(tmp_path: Path) -> None:
    written(tmp_path, OLD)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "runs" / "b-seed0" / "mine.txt").write_text("mine")
    assert claim_folder(tmp_path, ("requests.parquet",)) == 4  # summary.json too
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["notes.txt", "runs/b-seed0/mine.txt", "summary.json"]
    assert not (tmp_path / "runs" / "a-seed0").exists()
    assert json.loads((tmp_path / "summary.json").read_text())["files"] == ["summary.json", "requests.parquet"]


def test_an_interrupted_run_makes_way_too(tmp_path: Path) -> None:
    claim_folder(tmp_path, OLD)
    (tmp_path / "results.parquet").write_text("half")
    assert claim_folder(tmp_path, OLD) == 2


@pytest.mark.parametrize("summary", [None, "not json", "[]", '{"files": 3}', '{"files": ["../results.parquet"]}'])
def test_files_of_others_are_not_touched(tmp_path: Path, summary: str | None) -> None:
    folder = tmp_path / "o"
    folder.mkdir()
    (tmp_path / "results.parquet").write_text("mine")
    (folder / "results.parquet").write_text("mine")
    if summary is not None:
        (folder / "summary.json").write_text(summary)
    with pytest.raises(ConfigError, match=r"is there and not from an earlier run; choose another output folder"):
        claim_folder(folder, OLD)
    assert (folder / "results.parquet").read_text() == "mine"
    assert (tmp_path / "results.parquet").read_text() == "mine"
