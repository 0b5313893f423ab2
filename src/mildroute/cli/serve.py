"""``mildroute serve`` runs the gateway; ``mildroute keys`` manages client keys."""

from __future__ import annotations

import dataclasses
import ipaddress
import logging
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.serving.config import GatewayConfig

__all__ = ["keys", "serve_router"]


_LOG = logging.getLogger(__name__)
_LogFormat = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        help="Of the lines on stderr; text if no settings say otherwise.", metavar="text|json"
    ),
]

_RouterLocation = Annotated[
    str,
    typer.Argument(
        metavar="ROUTER", help="Folder of a stored router, or the URL of a pointer to one."
    ),
]


# ``mildroute keys``: keys for clients of the gateway, shown once.


keys = typer.Typer(
    name="keys", help="Keys of the gateway's clients.", no_args_is_help=True, rich_markup_mode=None
)
KeyFile = Annotated[Path, typer.Option("--file", help="The key file.")]
ClientName = Annotated[str, typer.Argument(help="Of the client, as log and metrics show it.")]
_KEY_FILE = Path("keys.yaml")
_RELOAD = "Gateways take it after SIGHUP or /admin/reload."


@keys.command("new")
def new_key(
    name: ClientName,
    file: KeyFile = _KEY_FILE,
    requests_per_minute: Annotated[
        float | None, typer.Option(help="Requests that are let through.")
    ] = None,
    tokens_per_minute: Annotated[
        float | None, typer.Option(help="Tokens of requests and responses together.")
    ] = None,
    dollars_per_day: Annotated[
        float | None, typer.Option(help="Dollars that may be spent in a day of UTC.")
    ] = None,
    dollars_per_month: Annotated[
        float | None, typer.Option(help="Dollars that may be spent in a month of UTC.")
    ] = None,
    max_in_flight: Annotated[int | None, typer.Option(help="Requests at the same time.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="A route or expert it may name; repeat it for more."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When its key ends, such as 2027-01-31.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="Its team, of those in the file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key for a client: it is printed this once, and the file gets its hash alone.

    The file is made if there is none. Limits that are not given are none.

    Example: mildroute keys new team-a --dollars-per-day 5 --file keys.yaml
    """
    from mildroute.serving.auth.keys import add_client

    key = add_client(
        file,
        name,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        dollars_per_day=dollars_per_day,
        dollars_per_month=dollars_per_month,
        max_in_flight=max_in_flight,
        models=models or None,
        expires=expires,
        team=team,
    )
    _show_key(name, key, file, as_json=as_json)


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
        print_json({"name": name, "file": str(file)})
    else:
        typer.echo(f"Only the latest key of {name!r} is in {file} now. {_RELOAD}")


@keys.command("revoke")
def revoke_client_key(name: ClientName, file: KeyFile = _KEY_FILE, as_json: AsJson = False) -> None:
    """Let all keys of a client expire now; its callers get a 401 that says so.

    Example: mildroute keys revoke team-a --file keys.yaml
    """
    from mildroute.serving.auth.keys import revoke_key

    revoke_key(file, name, time.time())
    if as_json:
        print_json({"name": name, "file": str(file)})
    else:
        typer.echo(f"The keys of {name!r} are revoked in {file}. {_RELOAD}")


def _show_key(name: str, key: str, file: Path, *, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "key": key, "file": str(file)})
    else:
        typer.echo(key)
        typer.echo(f"The key of {name!r} is shown this once; {file} holds its hash.", err=True)


# ``mildroute serve``: an OpenAI-compatible endpoint that chooses the expert.


def serve_router(
    router: _RouterLocation,
    experts: Annotated[
        Path, typer.Option(help="The experts, their addresses and prices.", metavar="experts.yaml")
    ],
    settings: Annotated[
        Path | None, typer.Option(help="All that can be set; see docs.", metavar="gateway.yaml")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    keys: Annotated[
        Path | None,
        typer.Option(help="File of client keys; see mildroute keys.", metavar="keys.yaml"),
    ] = None,
    no_keys: Annotated[
        bool,
        typer.Option("--no-keys", help="Allow unauthenticated access on a non-loopback address."),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(help="Folder of the decision log; without it nothing is written down."),
    ] = None,
    log_format: _LogFormat = None,
    exploration_rate: Annotated[
        float | None,
        typer.Option(help="Fraction of requests routed at random (exploration).", min=0, max=1),
    ] = None,
    workers: Annotated[
        int, typer.Option(help="Processes that share the port (Linux).", min=1, metavar="N")
    ] = 1,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces", help="Send OpenTelemetry spans; OTEL_EXPORTER_OTLP_ENDPOINT says where."
        ),
    ] = False,
) -> None:
    """Serve a stored ROUTER as an OpenAI-compatible endpoint that picks the model.

    Clients change their base URL to http://127.0.0.1:8000/v1 and ask for the model "mildroute".
    SIGHUP loads the artifact and the client keys again. With --workers each process counts limits
    and circuits by itself; a worker that dies is started again.

    Example: mildroute serve router --experts experts.yaml --log decisions
    """
    chosen = _settings(settings, keys, log, log_format, exploration_rate)
    _check_reach(host, chosen, open_to_all=no_keys)
    _check_port(host, port)
    if workers == 1:
        _serve(router, experts, chosen, host, port, traces=traces)
    else:
        _serve_workers(router, experts, chosen, host, port, workers, traces=traces)


def _serve(
    router: str, experts: Path, settings: GatewayConfig, host: str, port: int, *, traces: bool
) -> None:
    from mildroute.serving.factory import load_gateway
    from mildroute.serving.observability.logs import log_to_stderr
    from mildroute.serving.server import serve

    with log_to_stderr(settings.logging):
        services = load_gateway(router, experts, settings, traces=traces)
        count = len(services.experts.experts)
        serve(services, host, port, partial(_announce, settings, count))


def _serve_workers(
    router: str,
    experts: Path,
    settings: GatewayConfig,
    host: str,
    port: int,
    workers: int,
    *,
    traces: bool,
) -> None:
    from mildroute.serving.observability.logs import log_to_stderr
    from mildroute.serving.workers import serve_workers

    with log_to_stderr(settings.logging):
        serve_workers(
            router,
            experts,
            settings,
            host=host,
            port=port,
            workers=workers,
            announce=partial(_announce, settings),
            traces=traces,
        )


def _announce(settings: GatewayConfig, experts: int, address: str) -> None:
    from mildroute.serving.observability.logs import log_event

    if settings.logging.format == "json":
        log_event(_LOG, logging.INFO, "serving", url=address, experts=experts)
    else:
        typer.echo(f"serving {experts} experts at {address}  (model: mildroute)")


def _settings(
    path: Path | None,
    keys: Path | None,
    log: Path | None,
    log_format: Literal["text", "json"] | None,
    exploration_rate: float | None,
) -> GatewayConfig:
    from mildroute.serving.config import GatewayConfig, read_config

    found = GatewayConfig() if path is None else read_config(path)
    if keys is not None:
        found = dataclasses.replace(found, keys=keys)
    if log is not None:
        found = dataclasses.replace(found, log=dataclasses.replace(found.log, folder=log))
    if log_format is not None:
        logs = dataclasses.replace(found.logging, format=log_format)
        found = dataclasses.replace(found, logging=logs)
    if exploration_rate is not None:
        routing = dataclasses.replace(found.routing, exploration_rate=exploration_rate)
        found = dataclasses.replace(found, routing=routing)
    return found


def _check_reach(host: str, settings: GatewayConfig, *, open_to_all: bool) -> None:
    try:
        is_private = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_private = False
    if not is_private and settings.keys is None and not open_to_all:
        raise ArgumentError(
            f"a gateway that others can reach needs client keys, got none for {host!r}; make them"
            " with mildroute keys new and give --keys, or add --no-keys if something before it"
            " lets only the right ones in."
        )


def _check_port(host: str, port: int) -> None:
    """Say so before a router is loaded for nothing."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ArgumentError(
            f"the gateway must be able to listen on {host} at port {port}, got: {error.strerror};"
            " give --port or --host."
        ) from None
