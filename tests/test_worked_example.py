"""docs/worked_example.md is a program: every block runs, and what it prints is what the page shows under it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "worked_example.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```\n(?:\n^```text\n(.*?)^```)?", PAGE, flags=re.MULTILINE | re.DOTALL)


def test_every_block_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for code, shown in BLOCKS:
        exec(compile(code, "docs/worked_example.md", "exec"), names)
        assert capsys.readouterr().out == shown
    assert len(BLOCKS) == PAGE.count("```python")


NUMBERS = (
    "1.6000   0.8256   0.8800   1.4221  0.516534  0.547919    -7",
    "3.2000   2.3424  -0.2400   0.3603  0.771830  0.284296   -14",
    "0.8000   0.4864   0.4400   0.6595  0.100259  0.179136   -19",
    "674.0 now",
    "710.0 when",  # exact peaks; a forecast by buckets has 716
    "684.0 now",
    "744.0 when",
    "in 10.0 iterations",
    "a -> g1",
    "c -> g0",
    "slot price 0.065625",
)


@pytest.mark.parametrize("text", NUMBERS)
def test_the_numbers_are_those_of_the_algorithm(text: str) -> None:
    assert text in "".join(shown for _, shown in BLOCKS)
