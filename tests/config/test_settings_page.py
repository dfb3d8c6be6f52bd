"""docs/settings.md names every key of the online LPs, with the defaults that the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from olp_ray.config.base import validate
from olp_ray.config.router import OnlineLPConfig, PaperLPConfig, RouterConfig
from olp_ray.config.scenario import ScenarioConfig

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
MODELS = {"online_lp": OnlineLPConfig, "paper_lp": PaperLPConfig}


def table(section: str) -> dict[str, list[str]]:
    """Cells of the section's rows after the key, by key."""
    text = PAGE.split(f"## `{section}`")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    return {row[0].strip("`"): row[1:] for row in rows}


def value(text: str) -> object:
    """What a cell states: the part after `=` and before `;`."""
    return yaml.safe_load(text.split(";")[0].split("= ")[-1].replace("inf", ".inf"))


@pytest.mark.parametrize("section", MODELS)
def test_every_key_is_in_the_table_and_no_other(section: str) -> None:
    assert set(table(section)) == set(MODELS[section].model_fields)


@pytest.mark.parametrize("section", MODELS)
def test_defaults_are_those_of_the_code(section: str) -> None:
    for column, mode in enumerate(("timed", "period")):
        settings = getattr(RouterConfig().settings(mode), section)
        for key, cells in table(section).items():
            expected = getattr(settings, key)
            stated = value(cells[column])
            assert stated == (pytest.approx(expected, rel=1e-3) if type(expected) is float else expected), key


def test_what_presets_change_is_as_the_table_says() -> None:
    ttft_s, e2e_s = 2.0, 15.0
    of = {
        name: RouterConfig(preset=name).settings("timed").online_lp for name in ("attainment", "p95_ttft", "p99_ttft")
    }
    assert {lp.urgency_s for lp in of.values()} == {0.5 * ttft_s}
    assert of["p95_ttft"].calm_urgency_s == 4 * ttft_s
    assert of["p95_ttft"].calm_late_requests == 0.05 * of["p95_ttft"].history
    assert (of["p99_ttft"].max_wait_s, of["p99_ttft"].max_wait_exempt_share) == (2 * ttft_s, 0.008)
    assert RouterConfig(rejects="never").settings("timed").online_lp.max_wait_s == 40 * e2e_s


def test_the_example_is_read() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    lp = validate(yaml.safe_load(text), ScenarioConfig, "page").router.online_lp
    assert (lp.max_wait_s, lp.reservation) == (30, False)
