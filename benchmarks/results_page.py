"""docs/results.md is written by commands; each owns the sections between its own marks. No figures live here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

RESULTS = Path(__file__).parent.parent / "docs" / "results.md"
TITLE = "# Results\n\nEvery section is written by the command that it names; losses are in the tables like gains.\n"


def replace_section(name: str, text: str, path: Path = RESULTS) -> None:
    """Put `text` between the marks of section `name`; a new section goes to the end. The rest stays as it is."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    page = path.read_text() if path.exists() else TITLE
    section = f"{begin}\n{text.strip()}\n{end}"
    if begin in page:
        before, rest = page.split(begin, 1)
        after = rest.split(end, 1)[1]
        page = before + section + after
    else:
        page = f"{page.rstrip()}\n\n{section}\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A pipe table; the first column is aligned left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def records_table(rows: Sequence[Mapping[str, str]]) -> str:
    """A pipe table of records with equal keys."""
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows]) if rows else "(none run)"
