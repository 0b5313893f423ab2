"""The ``mildroute`` command; each sub-command parses, calls one library function and prints one result."""

from __future__ import annotations

from typing import Annotated

import typer

from mildroute import __version__

__all__ = ["app"]

app = typer.Typer(name="mildroute", no_args_is_help=True, add_completion=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mildroute {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Route each input to the expert that should answer it."""
