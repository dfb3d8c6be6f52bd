"""docs/policies.md speaks of every policy and switch there is, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from olp_ray.config.router import PRESETS, PaperLPConfig
from olp_ray.core.explanation import StartRule, WaitReason
from olp_ray.core.policies import POLICIES, describe_policy

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text()


PARAGRAPHS = dict(re.findall(r"^\*\*`(\w+)`\*\*(.*?)(?=\n\n|\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", [*POLICIES, *PRESETS])
def test_every_policy_and_preset_has_its_paragraph(name):
    assert len(PARAGRAPHS[name]) > 20


def test_no_paragraph_is_about_what_is_not_there():
    assert set(PARAGRAPHS) == {*POLICIES, *PRESETS}


@pytest.mark.parametrize("name", [name for name in PRESETS if name.startswith("paper_")])
def test_presets_of_the_paper_name_their_figure(name):
    (figure,) = re.findall(r"Figure \w+", PRESETS[name].doc)
    assert f"({figure})" in PARAGRAPHS[name]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_describes_itself_in_a_line(name):
    assert 20 < len(describe_policy(name)) < 200


def test_switches_and_their_defaults_are_those_of_the_config():
    switches = {"reward_normaliser", "learning_rate", "remaining", "recording", "mixed", "count_prompt_tokens", "exact"}
    rows = {re.findall(r"`(\w+)`", line)[0]: line for line in PAGE.splitlines() if line.startswith("| `")}
    assert set(rows) == switches
    defaults = PaperLPConfig()
    for name in ("reward_normaliser", "remaining", "recording"):
        assert rows[name].split("|")[2].strip().startswith(f"`{getattr(defaults, name)}`")
    assert f"{defaults.learning_rate:.0e}".replace("e-0", "e-") in rows["learning_rate"]


def test_every_reason_and_start_rule_is_explained_from_the_lightest_to_the_heaviest():
    section = PAGE.split("## What an answer says")[1].split("\n## ")[0]
    rows = re.findall(r"^\| [a-z ]*\| `(\w+)` \| (.{10,}) \|$", section, flags=re.MULTILINE)
    assert [name for name, _ in rows] == [*WaitReason, *StartRule]


def test_the_examples_run(capsys):
    added, bound = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    try:
        exec(compile(added, "docs/policies.md", "exec"), {"__name__": "page"})
        assert float(capsys.readouterr().out) > 0
    finally:
        POLICIES.pop("widest_first", None)
    exec(compile(bound, "docs/policies.md", "exec"), {})
    assert "HindsightBound(metric=<Metric.MEAN_E2E" in capsys.readouterr().out
