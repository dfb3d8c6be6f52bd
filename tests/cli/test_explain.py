"""What tables say of an answer: times from now on, whatever the router's clock shows."""

from __future__ import annotations

import dataclasses

import pytest
from rich.console import Console

from olp_ray.cli.explain import LEGEND, START_LEGEND, answer_table, overview_table, print_legend
from olp_ray.config.router import RouterConfig
from olp_ray.core.router import Router
from olp_ray.core.types import Arrived, Device, Request

NOW_S = 5000.0


@pytest.fixture
def answers():
    """One on the only slot, planned to end 40 s from now; two wait, the next of them for 30 s."""
    router = Router(
        [Device("g0", 1, 1000, 2.0)], "central_fifo", RouterConfig().settings("period"), RouterConfig().limits(), 0
    )
    for request_id, predicted in (("held", 20.0), ("first", 15.0), ("second", 5.0)):
        router.handle(NOW_S, [Arrived(Request(request_id, NOW_S, 10, predicted))])
    return {one.request_id: dataclasses.asdict(one) for one in router.explain(NOW_S)}


def lines(table):
    console = Console(width=300)
    with console.capture() as captured:
        console.print(table)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in captured.get().splitlines() if "│" in line]
    return {row[0]: row[1:] for row in rows}


def test_the_list_says_when_each_starts(answers):
    shown = lines(overview_table(list(answers.values())))
    assert {name: shown[name][-2:] for name in answers} == {
        "first": ["40", "earliest_fit"],
        "second": ["70", "estimated_by_rank"],
        "held": ["", "already_there"],
    }


def test_one_answer_says_how_long_it_takes(answers):
    waiting, held = (lines(answer_table(answers[name], "now")) for name in ("first", "held"))
    assert waiting["expected_start_s"] == ["in 40 s"]
    assert waiting["g0"] == ["no_free_slot; earliest_start_s in 40 s"]
    assert held["planned_end_s"] == ["in 40 s"]
    assert all(answer["now_s"] == NOW_S for answer in answers.values())


def test_starts_are_explained_while_one_waits_and_worth_where_there_is_one(answers, capsys):
    held = answers["held"]
    for asked, expected in (
        (list(answers.values()), [START_LEGEND]),
        ([held], []),
        ([{**held, "key": 1.0}], [LEGEND]),
        ([{**answers["first"], "key": 1.0}], [LEGEND, START_LEGEND]),
    ):
        print_legend(iter(asked))
        assert capsys.readouterr().out.splitlines() == expected
