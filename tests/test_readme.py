"""What the README tells a newcomer to type is there and works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from olp_ray.cli import main
from olp_ray.cli.group import COMMANDS as CLI_COMMANDS
from olp_ray.cli.options import DEFAULT_OUT

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, *languages: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


COMMANDS = sorted(
    {
        line.strip()
        for page in PAGES
        for block in blocks(page, "", "sh")
        for line in re.split(r"\n|&&", block.replace("\\\n", " "))
        if line.strip().startswith("olp-ray")
    }
)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_in_the_pages_exist_with_their_flags(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = main
    with click.Context(main) as context:
        while isinstance(command, click.Group) and words:
            name, words = words[0], words[1:]
            found = command.get_command(context, name)
            assert found is not None, f"no command {name!r}"
            command = found
        command.make_context(command.name, words, parent=context)


def test_what_the_commands_write_is_ignored() -> None:
    """By name: a copy without its repository has the same list."""
    helped = "\n".join((ROOT / "olp_ray" / "cli" / f"{name}.py").read_text() for name in ("group", *CLI_COMMANDS))
    typed = "\n".join([*(page.read_text() for page in PAGES), helped])
    folders = set(re.findall(r"--out (\w[\w-]*)", typed))
    files = set(re.findall(r"workload (?:generate|convert \S+) (\w[\w.-]*)", typed))
    assert {"o", "run", "smoke", "inline", "shards", "DIR"} <= folders
    assert "trace.csv" in files
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    defaults = {DEFAULT_OUT, "olp-ray-sweep", "quality-runs"}
    assert {f"/{name}/" for name in folders} | {f"{name}/" for name in defaults} <= set(ignored)
    assert {f"/*{Path(name).suffix}" for name in files} <= set(ignored)


def test_the_pages_show_commands() -> None:
    assert len(COMMANDS) >= 6


def test_the_readme_names_every_command() -> None:
    text = PAGES[0].read_text()
    assert [name for name in CLI_COMMANDS if f"olp-ray {name}" not in text] == []


@pytest.mark.parametrize("code", blocks(PAGES[0], "python"))
def test_python_in_the_readme_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    assert float(capsys.readouterr().out) > 0


def test_the_integration_run_ends_with_the_test_command_of_the_readme() -> None:
    install, test = blocks(PAGES[0], "sh")[1].strip().split(" && ")[2:]
    script = (ROOT / ".ci" / "run").read_text().strip().splitlines()
    assert script[-1] == test
    assert install.removeprefix("pip install -e ") in script[-2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_figures_are_there(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing
