"""What `olp-ray compare` says below its table."""

from __future__ import annotations

import pytest

from olp_ray.cli.compare import rejection_note
from olp_ray.config.scenario import ScenarioConfig


@pytest.mark.parametrize(
    ("policies", "router", "expected"),
    [
        (["round_robin", "least_kv"], {}, ""),
        (
            ["round_robin", "online_lp"],
            {},
            "A request that waited for the starvation bound is rejected where capacity can not hold it. "
            "`--rejects never` serves everything.",
        ),
        (
            ["online_lp:p95_ttft", "round_robin:attainment", "edf:p99_ttft", "online_lp_paper:paper_latency"],
            {},
            "A request that waited for the starvation bound is rejected where capacity can not hold it; "
            "`online_lp:p95_ttft` and `edf:p99_ttft` also reject what is too late; `online_lp_paper:paper_latency` "
            "serves everything. `--rejects never` serves everything.",
        ),
        (["edf"], {"preset": "paper_tail"}, "`edf` serves everything."),
        (["edf:attainment"], {"rejects": "never"}, "Every policy with a central queue rejects by `never`."),
    ],
)
def test_compare_says_who_rejects_what(policies: list[str], router: dict[str, str], expected: str) -> None:
    assert rejection_note(ScenarioConfig.model_validate({"router": router}), policies) == expected
