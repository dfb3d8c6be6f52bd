"""Whole traces, read from the folder `shared/traces` beside the checkout; without it these tests skip."""

from __future__ import annotations

from pathlib import Path

import pytest

from olp_ray.workload import read_trace
from olp_ray.workload.describe import describe

TRACES = Path(__file__).parents[3] / "shared" / "traces"

# requests, and medians of prompt and output tokens where they are known
PUBLISHED = {
    "azure2023_conv.csv": (19_366, 1020, 129),
    "azure2023_code.csv": (8_819, 1469, 13),
    "mooncake_conversation_4k.csv": (4_000, None, None),
    "servegen_m_small_1h_10rps.csv": (35_774, None, None),
    "vtc_arena.csv": (1_500, None, None),
    "lengths_arxiv_summarization_llama2.csv": (28_257, None, 167),
    "synthetic_chat1m_like_20k_5rps.csv": (20_000, None, None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_whole_trace(name: str) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"no {name} in the folder shared/traces beside the checkout")
    requests, prompt, output = PUBLISHED[name]
    found = describe(read_trace(path))
    assert found.requests == requests
    if prompt is not None:
        assert found.prompt_tokens.quantiles[0] == pytest.approx(prompt, rel=0.01)
    if output is not None:
        assert found.output_tokens.quantiles[0] == pytest.approx(output, rel=0.01)
    extras = {"vtc_arena.csv": {"tenant": 27}, "synthetic_chat1m_like_20k_5rps.csv": {"priority": 3}}
    assert extras.get(name, {}).items() <= found.extras.items()
