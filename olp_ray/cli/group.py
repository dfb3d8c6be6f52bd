"""The command group: which commands there are, and how errors are shown. Commands are imported when they are used."""

from __future__ import annotations

import importlib
from typing import Any

import click

from olp_ray.errors import OlpRayError

COMMANDS = {
    "simulate": ("olp_ray.cli.simulate", "Simulate one policy on one scenario."),
    "compare": ("olp_ray.cli.compare", "Compare policies over seeds; start here."),
    "bound": ("olp_ray.cli.bound", "How good could anyone have been: hindsight bounds."),
    "sweep": ("olp_ray.cli.sweep", "Sweep weights and constants on Ray Tune."),
    "front": ("olp_ray.cli.front", "Draw the non-dominated set of a sweep."),
    "serve": ("olp_ray.cli.serve", "Serve an OpenAI endpoint over a fleet."),
    "status": ("olp_ray.cli.status", "What a running endpoint's coordinator is doing."),
    "explain": ("olp_ray.cli.explain", "Why a request of a running endpoint waits."),
    "policies": ("olp_ray.cli.policies", "List policies and presets."),
    "workload": ("olp_ray.cli.workload", "Describe or convert a trace, or write a generated one."),
}


class UserError(click.ClickException):
    """A wrong input: shown as it is, without a traceback."""

    exit_code = 2


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for, so that `--help` needs no libraries."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, doc) for name, (_, doc) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OlpRayError as error:
            raise UserError(str(error)) from error
        except OSError as error:
            if error.filename is None:
                raise
            raise UserError(f"{error.filename}: {error.strerror}") from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="olp-ray")
def main() -> None:
    """SLO-aware request routing for fleets of LLM replicas, by online linear programming.

    \b
    Examples:
      olp-ray compare                                   # a built-in scenario, under a minute
      olp-ray compare --trace trace.csv --load 1.0 --fleet 4xa100-8b --seeds 2
      olp-ray simulate --policy online_lp:e2e --load 0.9
      olp-ray sweep tune_configs/smoke.yaml --out sweep && olp-ray front sweep/results.parquet
      olp-ray serve                                     # curl http://127.0.0.1:8000/v1/chat/completions
    """
