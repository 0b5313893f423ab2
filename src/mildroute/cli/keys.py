"""``mildroute keys new``: a key for a client of the gateway, shown once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mildroute.cli.options import AsJson
from mildroute.cli.output import print_json

__all__ = ["keys"]

keys = typer.Typer(name="keys", help="Keys of the gateway's clients.", no_args_is_help=True, rich_markup_mode=None)


@keys.command("new")
def new_key(
    name: Annotated[str, typer.Argument(help="Of the client, as log and metrics show it.")],
    file: Annotated[Path, typer.Option("--file", help="The key file; it is made if there is none.")] = Path("keys.yaml"),
    requests_per_minute: Annotated[float | None, typer.Option("--requests-per-minute", help="That are let through.")] = None,
    dollars_per_day: Annotated[float | None, typer.Option("--dollars-per-day", help="That may be spent in a day of UTC.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a client: it is printed this once, and the file gets its hash alone.

    Example: mildroute keys new team-a --dollars-per-day 5 --file keys.yaml
    """
    from mildroute.serving.key_file import add_client
    from mildroute.serving.keys import Client

    key = add_client(file, Client(name, requests_per_minute, dollars_per_day))
    if as_json:
        print_json({"name": name, "key": key, "file": str(file)})
    else:
        typer.echo(key)
        typer.echo(f"The key of {name!r} is shown this once; {file} holds its hash.", err=True)
