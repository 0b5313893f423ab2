"""``mildroute keys``: keys for clients of the gateway, shown once."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json
from mildroute.exceptions import ArgumentError

__all__ = ["keys"]


keys = typer.Typer(
    name="keys", help="Manage client API keys.", no_args_is_help=True, rich_markup_mode=None
)
KeyFile: TypeAlias = Annotated[
    str,
    typer.Option(
        "--file",
        help="Key file, or the URL of a database: sqlite:////folder/keys.db, postgresql://...",
    ),
]
DatabaseUrl: TypeAlias = Annotated[
    str, typer.Option("--file", help="URL of the database, as in keys new.")
]
ClientName: TypeAlias = Annotated[
    str, typer.Argument(help="Name of the client, as shown in logs and metrics.")
]
RequestsPerMinute: TypeAlias = Annotated[
    float | None, typer.Option(help="Maximum requests per minute; no limit by default.")
]
TokensPerMinute: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Maximum tokens per minute, requests plus responses; no limit by default."),
]
DollarsPerDay: TypeAlias = Annotated[
    float | None, typer.Option(help="Maximum dollars per day in UTC; no limit by default.")
]
DollarsPerMonth: TypeAlias = Annotated[
    float | None, typer.Option(help="Maximum dollars per month in UTC; no limit by default.")
]
MaxInFlight: TypeAlias = Annotated[
    int | None, typer.Option(help="Maximum concurrent requests; no limit by default.")
]
OnFailure: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=(
            "share, closed or open: how limits apply while the shared store is unavailable; by"
            " default as in store.on_failure."
        )
    ),
]
Models: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="Route or expert that the client may request; all by default; may be repeated.",
    ),
]
Count: TypeAlias = Annotated[
    int | None,
    typer.Option(help="Number of clients to create in a database: NAME-000001 and so on.", min=1),
]
_KEY_FILE = "keys.yaml"
_WHEN_EFFECTIVE = (
    "Gateways apply this after SIGHUP or /admin/reload, and automatically from a database."
)


@keys.command("new")
def new_key(
    name: ClientName,
    file: KeyFile = _KEY_FILE,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    dollars_per_day: DollarsPerDay = None,
    dollars_per_month: DollarsPerMonth = None,
    max_in_flight: MaxInFlight = None,
    on_failure: OnFailure = None,
    models: Models = None,
    expires: Annotated[
        str | None,
        typer.Option(help="Expiry of the key in UTC, such as 2027-01-31; never by default."),
    ] = None,
    team: Annotated[str | None, typer.Option(help="Team of the client; it must exist.")] = None,
    count: Count = None,
    out: Annotated[
        Path | None, typer.Option(help="New CSV file for the names and keys of --count.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a client and print its key once; the file stores only the hash.

    Creates the file if it does not exist. Omitted limits do not apply.

    Example: mildroute keys new team-a --dollars-per-day 5 --file keys.yaml
    """
    from mildroute.serving.auth.keys import add_client, add_clients, numbered_clients

    settings = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "dollars_per_day": dollars_per_day,
        "dollars_per_month": dollars_per_month,
        "max_in_flight": max_in_flight,
        "on_failure": on_failure,
        "models": models or None,
        "expires": expires,
        "team": team,
    }
    if (count is None) != (out is None):
        raise ArgumentError("--count and --out belong together, got one of them; give both.")
    if count is None or out is None:
        _show_key(name, add_client(file, name, **settings), file, as_json=as_json)
        return
    clients = numbered_clients(name, count, **settings)
    made = add_clients(file, clients, partial(_write_keys, out))
    if as_json:
        print_json({"clients": len(made), "keys": str(out), "file": file})
    else:
        typer.echo(
            f"{len(made):,} keys are in {out}, readable only by its owner; {file} holds hashes."
        )


@keys.command("import")
def import_keys(
    source: Annotated[Path, typer.Argument(metavar="keys.yaml", help="Key file.")],
    file: DatabaseUrl,
    as_json: AsJson = False,
) -> None:
    """Copy the clients and teams of a key file to a database; their keys stay valid.

    Example: mildroute keys import keys.yaml --file sqlite:///keys.db
    """
    from mildroute.serving.auth.keys import import_clients

    count = import_clients(source, file)
    if as_json:
        print_json({"clients": count, "file": file})
    else:
        typer.echo(f"Copied {count:,} clients from {source} to {file}.")


@keys.command("team")
def set_team(
    name: Annotated[str, typer.Argument(help="Name of the team.")],
    file: DatabaseUrl,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    dollars_per_day: DollarsPerDay = None,
    dollars_per_month: DollarsPerMonth = None,
    max_in_flight: MaxInFlight = None,
    on_failure: OnFailure = None,
    as_json: AsJson = False,
) -> None:
    """Add a team to a database or replace its limits; omitted limits do not apply.

    Example: mildroute keys team research --dollars-per-day 50 --file sqlite:///keys.db
    """
    from mildroute.serving.auth.keys import put_team

    limits = {
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "dollars_per_day": dollars_per_day,
        "dollars_per_month": dollars_per_month,
        "max_in_flight": max_in_flight,
        "on_failure": on_failure,
    }
    put_team(file, name, **limits)
    if as_json:
        print_json({"name": name, "file": file})
    else:
        typer.echo(f"The limits of team {name!r} are in {file}.")


@keys.command("list")
def list_keys(file: KeyFile = _KEY_FILE, as_json: AsJson = False) -> None:
    """List clients with their limits, without keys or hashes.

    Example: mildroute keys list --file keys.yaml
    """
    from mildroute.serving.auth.keys import describe_clients

    rows = describe_clients(file, time.time())
    if as_json:
        print_json(rows)
        return
    for row in rows:
        settings = [
            f"{key}={', '.join(value) if isinstance(value, list) else value}"
            for key, value in row.items()
            if key not in ("name", "status")
        ]
        typer.echo("  ".join([row["name"], row["status"], *settings]))


@keys.command("rotate")
def rotate_client_key(
    name: ClientName,
    file: KeyFile = _KEY_FILE,
    finish: Annotated[
        bool, typer.Option("--finish", help="End the rotation: only the latest key stays valid.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a second key for a client, with the same limits and budget.

    Both keys are valid until --finish or the next rotation drops the older one.

    Example: mildroute keys rotate team-a --file keys.yaml
    """
    from mildroute.serving.auth.keys import rotate_key

    key = rotate_key(file, name, finish=finish)
    if key is not None:
        _show_key(name, key, file, as_json=as_json)
    elif as_json:
        print_json({"name": name, "file": file})
    else:
        typer.echo(f"Only the latest key of {name!r} is in {file} now. {_WHEN_EFFECTIVE}")


@keys.command("revoke")
def revoke_client_key(name: ClientName, file: KeyFile = _KEY_FILE, as_json: AsJson = False) -> None:
    """Revoke all keys of a client now; its requests get a 401 that says so.

    Example: mildroute keys revoke team-a --file keys.yaml
    """
    from mildroute.serving.auth.keys import revoke_key

    revoke_key(file, name, time.time())
    if as_json:
        print_json({"name": name, "file": file})
    else:
        typer.echo(f"The keys of {name!r} are revoked in {file}. {_WHEN_EFFECTIVE}")


def _show_key(name: str, key: str, file: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "key": key, "file": file})
    else:
        typer.echo(key)
        typer.echo(f"The key of {name!r} is shown this once; {file} holds its hash.", err=True)


def _write_keys(path: Path, made: Mapping[str, str]) -> None:
    """Write names and keys to a new file, which its owner alone may read."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("name,key\n")
            file.writelines(f"{name},{key}\n" for name, key in made.items())
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise ArgumentError(
            f"keys are written to a new file, got for {str(path)!r}: {error.strerror}; choose"
            " another one."
        ) from None
