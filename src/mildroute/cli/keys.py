"""``mildroute keys``: create, list and revoke the keys of the gateway's clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json

__all__ = ["keys"]


keys = typer.Typer(
    name="keys", help="Manage client API keys.", no_args_is_help=True, rich_markup_mode=None
)
KeyFile: TypeAlias = Annotated[Path, typer.Option("--file", help="Key file.")]
ClientName: TypeAlias = Annotated[
    str, typer.Argument(help="Client name, as shown in logs and metrics.")
]
_KEY_FILE = Path("keys.yaml")


@keys.command("new")
def new_key(
    name: ClientName,
    file: KeyFile = _KEY_FILE,
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Maximum requests per minute; no limit by default.")
    ] = None,
    dollars_per_day: Annotated[
        float | None, typer.Option(help="Maximum dollars per day in UTC; no limit by default.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            help="Route or expert that the client may request; all by default; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a client and print its key once; the file stores only the hash.

    Creates the file if it does not exist. Omitted limits do not apply.

    Example: mildroute keys new team-a --dollars-per-day 5 --file keys.yaml
    """
    from mildroute.gateway.key_changes import add_client

    key = add_client(
        file,
        name,
        requests_per_minute=requests_per_minute,
        dollars_per_day=dollars_per_day,
        models=models or None,
    )
    if as_json:
        print_json({"name": name, "key": key, "file": str(file)})
    else:
        typer.echo(key)
        typer.echo(
            f"The key of {name!r} is shown only this once; {file} stores its hash.", err=True
        )


@keys.command("list")
def list_keys(file: KeyFile = _KEY_FILE, as_json: AsJson = False) -> None:
    """List clients with their limits, without keys or hashes.

    Example: mildroute keys list --file keys.yaml
    """
    from mildroute.gateway.key_changes import describe_clients

    rows = describe_clients(file)
    if as_json:
        print_json(rows)
        return
    for row in rows:
        settings = [
            f"{key}={', '.join(value) if isinstance(value, list) else value}"
            for key, value in row.items()
            if key != "name"
        ]
        typer.echo("  ".join([row["name"], *settings]))


@keys.command("revoke")
def revoke_client_key(name: ClientName, file: KeyFile = _KEY_FILE, as_json: AsJson = False) -> None:
    """Remove a client; running gateways reject its key within a second.

    Example: mildroute keys revoke team-a --file keys.yaml
    """
    from mildroute.gateway.key_changes import revoke_key

    revoke_key(file, name)
    if as_json:
        print_json({"name": name, "file": str(file)})
    else:
        typer.echo(
            f"The key of {name!r} is revoked in {file}; running gateways reject it within a second."
        )
