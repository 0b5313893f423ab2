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
    name="keys", help="Keys of the gateway's clients.", no_args_is_help=True, rich_markup_mode=None
)
KeyFile: TypeAlias = Annotated[
    str,
    typer.Option(
        "--file",
        help="The key file, or the URL of a database: sqlite:////folder/keys.db, postgresql://...",
    ),
]
DatabaseUrl: TypeAlias = Annotated[
    str, typer.Option("--file", help="The URL of a database, as for keys new.")
]
ClientName: TypeAlias = Annotated[
    str, typer.Argument(help="Of the client, as log and metrics show it.")
]
RequestsPerMinute: TypeAlias = Annotated[
    float | None, typer.Option(help="Requests that are let through.")
]
TokensPerMinute: TypeAlias = Annotated[
    float | None, typer.Option(help="Tokens of requests and responses together.")
]
DollarsPerDay: TypeAlias = Annotated[
    float | None, typer.Option(help="Dollars that may be spent in a day of UTC.")
]
DollarsPerMonth: TypeAlias = Annotated[
    float | None, typer.Option(help="Dollars that may be spent in a month of UTC.")
]
MaxInFlight: TypeAlias = Annotated[int | None, typer.Option(help="Requests at the same time.")]
OnFailure: TypeAlias = Annotated[
    str | None,
    typer.Option(help="share, closed or open: its limits while the gateways' store is away."),
]
_KEY_FILE = "keys.yaml"
_WHEN_EFFECTIVE = (
    "Gateways take it after SIGHUP or /admin/reload, and from a database by themselves."
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
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A route or expert it may name; repeat it for more."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When its key ends, such as 2027-01-31.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="Its team, of those in the file.")] = None,
    count: Annotated[
        int | None,
        typer.Option(help="Make so many clients in a database: NAME-000001 and so on.", min=1),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --count: a new CSV file for names and keys.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a client: it is printed this once, and the file gets its hash alone.

    The file is made if there is none. Limits that are not given are none.

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
        typer.echo(f"{len(made):,} keys are in {out}, for its owner alone; {file} holds hashes.")


@keys.command("import")
def import_keys(
    source: Annotated[Path, typer.Argument(metavar="keys.yaml", help="The key file.")],
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
        typer.echo(f"{count:,} clients of {source} are in {file} now.")


@keys.command("team")
def set_team(
    name: Annotated[str, typer.Argument(help="Of the team.")],
    file: DatabaseUrl,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    dollars_per_day: DollarsPerDay = None,
    dollars_per_month: DollarsPerMonth = None,
    max_in_flight: MaxInFlight = None,
    on_failure: OnFailure = None,
    as_json: AsJson = False,
) -> None:
    """Add a team to a database, or change its limits; those that are not given are none.

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
    """List the clients of a key file with their limits; no key and no hash is shown.

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
    """Make a second key for a client, with the same limits and the same budget.

    Both keys are valid until --finish, or the next rotation, drops the older one.

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
    """Let all keys of a client expire now; its callers get a 401 that says so.

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
