"""The ``mildroute`` command.

Each sub-command parses, calls one library function and prints one result.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mildroute import __version__
from mildroute.cli._output import wrap
from mildroute.cli.collect import collect_costs
from mildroute.cli.compare import compare_routers
from mildroute.cli.costs import costs
from mildroute.cli.decide import serve_decisions_of
from mildroute.cli.demo import run_demo
from mildroute.cli.evaluate import evaluate_router
from mildroute.cli.fit import fit_router
from mildroute.cli.import_logs import import_logs
from mildroute.cli.inspect import inspect_table
from mildroute.cli.keys import keys
from mildroute.cli.learn import learn_from_log
from mildroute.cli.refit import add_expert, remove_expert, reprice
from mildroute.cli.route import route_inputs
from mildroute.cli.serve import serve_router
from mildroute.exceptions import MildrouteError, UnreachableTargetError

__all__ = ["app"]


# Exit codes: interrupted by Ctrl-C; unusable input; target out of reach.
INTERRUPTED, BAD_INPUT, OUT_OF_REACH = 1, 2, 3


class _Commands(TyperGroup):
    """A command group that turns user errors into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except MildrouteError as error:
            message = f"error: {' '.join(str(error).split())}"
            typer.echo(wrap(message, sys.stderr), err=True)
            raise typer.Exit(
                OUT_OF_REACH if isinstance(error, UnreachableTargetError) else BAD_INPUT
            ) from error
        except KeyboardInterrupt as interrupt:
            typer.echo(str(interrupt) or "stopped", err=True)
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="mildroute",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # boxes around the help would take longer to load than the rest of it
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=(
        "Exit codes: 0 success, 1 interrupted or internal error, 2 unusable input, 3 target out of"
        " reach, 4 an expert has no scores, 5 keep the router (learn). Every command except serve"
        " and decide takes --json."
    ),
)
app.command("collect")(collect_costs)
app.command("import")(import_logs)
app.command("inspect")(inspect_table)
app.command("compare")(compare_routers)
app.command("fit")(fit_router)
app.command("add-expert")(add_expert)
app.command("remove-expert")(remove_expert)
app.command("reprice")(reprice)
app.command("evaluate")(evaluate_router)
app.command("route")(route_inputs)
app.command("serve")(serve_router)
app.command("decide")(serve_decisions_of)
app.command("learn")(learn_from_log)
app.command("demo")(run_demo)
app.add_typer(costs)
app.add_typer(keys)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"mildroute {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Route each input to the expert that should answer it."""
