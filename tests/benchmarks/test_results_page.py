"""Sections of docs/results.md: replaced in place, others untouched."""

from __future__ import annotations

from benchmarks.results_page import TITLE, records_table, replace_section


def test_a_section_is_added_then_replaced_in_place(tmp_path):
    page = tmp_path / "results.md"
    replace_section("a", "first", page)
    replace_section("b", "other", page)
    replace_section("a", "second", page)
    assert page.read_text() == (
        f"{TITLE.rstrip()}\n\n<!-- begin a -->\nsecond\n<!-- end a -->\n\n<!-- begin b -->\nother\n<!-- end b -->\n"
    )


def test_records_become_a_table():
    assert records_table([{"a": "1", "b": "2"}]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
    assert records_table([]) == "(none run)"
