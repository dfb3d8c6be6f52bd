"""`olp-ray explain`, and how an explanation looks in a terminal."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from olp_ray.cli.output import print_table
from olp_ray.core.explanation import RequestState
from olp_ray.errors import RuntimeShellError

_TIMEOUT_S = 10.0
LEGEND = (
    "reward: V, what starting now earns. option_value: V less the price of the life on the best device, at least 0. "
    "not_waiting: what is lost by not starting now. key: not_waiting per unit of price on the cheapest device. level: "
    "class of keys close to each other; higher levels start first. docs/policies.md has the rule."
)
START_LEGEND = (
    "earliest_start_s: when room is planned there, if nothing else goes first; residents that end before their plan "
    "make it sooner. start_rule: where expected_start_s comes from; estimated_by_rank is an estimate, often "
    "several times too early where short or urgent requests go first. "
    "docs/policies.md lists rules and reasons."
)
_NUMBERS = ("reward", "slot_price", "kv_price", "prefill_price", "earliest_start_s")  # of a device
_TIMES = frozenset({"expected_start_s", "planned_end_s", "earliest_start_s"})  # tables show them from now on


@click.command()
@click.argument("request_id", required=False)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="The endpoint.")
@click.option("--json", "as_json", is_flag=True, help="Print the records as they are.")
def explain(request_id: str | None, url: str, as_json: bool) -> None:
    """Ask a running endpoint why requests wait: the first hundred, or one by its x-request-id.

    \b
    Examples:
      olp-ray explain
      olp-ray explain my-request --url http://10.0.0.1:8000
    """
    answers = ask(url, request_id)
    if as_json:
        click.echo(json.dumps(answers, indent=1))
    elif request_id is None:
        print_table(overview_table(answers))
    else:
        for answer in answers:
            print_table(answer_table(answer, "now"))
    if not as_json:
        print_legend(answers)


def ask(url: str, request_id: str | None) -> list[dict[str, Any]]:
    """The endpoint's records. Raises `RuntimeShellError` when there is no endpoint, or no such request."""
    path = "/explain" if request_id is None else f"/explain/{urllib.parse.quote(request_id, safe='')}"
    try:
        with urllib.request.urlopen(url.rstrip("/") + path, timeout=_TIMEOUT_S) as response:
            answers: list[dict[str, Any]] = json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeShellError(_message_of(error, url)) from error
    except (OSError, http.client.HTTPException, ValueError) as error:  # no URL, or no JSON
        raise RuntimeShellError(
            f"no endpoint answers at {url!r}: start `olp-ray serve` first; --url is like http://10.0.0.1:8000"
        ) from error
    return answers


def _message_of(error: urllib.error.HTTPError, url: str) -> str:
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{url!r} answers with status {error.code}, not as `olp-ray serve` does"


def print_legend(answers: Iterable[Mapping[str, Any]]) -> None:
    """What the numbers of the tables are: those of worth where a policy has them, those of starts where one waits."""
    answers = list(answers)
    shown = {
        LEGEND: any(answer["key"] is not None for answer in answers),
        START_LEGEND: any(answer["state"] == RequestState.WAITING for answer in answers),
    }
    for legend in (legend for legend, needed in shown.items() if needed):
        Console().print(legend, soft_wrap=True, highlight=False)


def overview_table(answers: Sequence[Mapping[str, Any]]) -> Table:
    """One line per request."""
    table = Table(
        "request", "state", "waited s", "rank", "reason", "reward", "option value", "key", "starts in s", "by"
    )
    for one in answers:
        state = one["state"] if one["device_id"] is None else f"{one['state']} on {one['device_id']}"
        numbers = (_text(one["reward"]), _text(one["option_value"]), _text(one["key"]))
        cells = (one["request_id"], state, _text(one["waited_s"]), _text(one["rank"]), one["reason"] or "")
        starts_s = one["expected_start_s"]
        in_s = "" if starts_s is None else _text(starts_s - one["now_s"])
        table.add_row(*cells, *numbers, in_s, one["start_rule"])
    return table


def answer_table(answer: Mapping[str, Any], when: str) -> Table:
    """One request: what it is worth and waits for, then a line per device."""
    state = answer["state"] if answer["device_id"] is None else f"{answer['state']} on {answer['device_id']}"
    table = Table("what", "value", title=f"{answer['request_id']} {when}: {state}")
    names = ("waited_s", "reason", "rank", "reward", "option_value", "not_waiting", "key", "level")
    for name in (*names, "expected_start_s", "start_rule", "decoded_tokens", "planned_end_s"):
        if answer[name] is not None:
            table.add_row(name, _cell(name, answer[name], answer["now_s"]))
    for device in answer["devices"]:
        known = [
            f"{name} {_cell(name, device[name], answer['now_s'])}" for name in _NUMBERS if device[name] is not None
        ]
        reasons = ", ".join(device["reasons"]) or "could start here"
        table.add_row(
            device["device_id"], "; ".join([reasons if answer["device_id"] is None else "", *known]).strip("; ")
        )
    return table


def _cell(name: str, value: Any, now_s: float) -> str:
    """A field as tables show it."""
    return f"in {_text(value - now_s)} s" if name in _TIMES else _text(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)
