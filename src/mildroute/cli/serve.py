"""``mildroute serve``: run the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import logging
import os
import signal
import socket
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.gateway.app import Gateway, GatewayServices
    from mildroute.gateway.config import GatewayConfig
    from mildroute.gateway.limits.redis import RedisLimits

__all__ = ["serve_router"]


_LOG = logging.getLogger(__name__)
_LogFormat = Annotated[
    Literal["text", "json"] | None,
    typer.Option(
        help="Log format on stderr; defaults to the one in --settings, or text.",
        metavar="text|json",
    ),
]

_AdminPort = Annotated[
    int | None,
    typer.Option(
        help="Separate port for /metrics, /admin and the page; defaults to the clients' port.",
        min=1,
        max=65535,
    ),
]
_AdminHost = Annotated[
    str | None, typer.Option(help="Address to listen on with --admin-port; 127.0.0.1 by default.")
]

_Keys = Annotated[
    Path | None, typer.Option(help="Client key file; see mildroute keys.", metavar="keys.yaml")
]
_NoKeys = Annotated[
    bool,
    typer.Option("--no-keys", help="Allow unauthenticated access on a non-loopback address."),
]
_Workers = Annotated[
    int,
    typer.Option(help="Number of processes that share the port.", min=1, metavar="N"),
]
_Traces = Annotated[
    bool,
    typer.Option("--traces", help="Send OpenTelemetry spans to OTEL_EXPORTER_OTLP_ENDPOINT."),
]
_Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help=(
            "Load everything without calling an expert, and exit with 0, or with 2 on an error."
            " ROUTER must exist if given."
        ),
    ),
]
_RouterLocation = Annotated[
    str | None,
    typer.Argument(
        metavar="ROUTER",
        help="Folder of a stored router, or the URL of a pointer to one; it may not exist yet.",
        show_default=False,
    ),
]


def serve_router(
    experts: Annotated[
        Path,
        typer.Option(help="Experts file, with addresses and prices.", metavar="experts.yaml"),
    ],
    router: _RouterLocation = None,
    settings: Annotated[
        Path | None, typer.Option(help="Gateway settings; see docs.", metavar="gateway.yaml")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
    admin_port: _AdminPort = None,
    admin_host: _AdminHost = None,
    keys: _Keys = None,
    no_keys: _NoKeys = False,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the decision log; defaults to the one in --settings, or no log."
        ),
    ] = None,
    log_format: _LogFormat = None,
    exploration_rate: Annotated[
        float | None,
        typer.Option(help="Fraction of requests routed at random (exploration).", min=0, max=1),
    ] = None,
    workers: _Workers = 1,
    traces: _Traces = False,
    check: _Check = False,
) -> None:
    """Serve a stored ROUTER as an OpenAI-compatible endpoint that picks the model.

    Clients set their base URL to http://127.0.0.1:8000/v1 and request the model "mildroute".
    SIGHUP reloads the artifact, the experts and the client keys. With --workers, SIGHUP replaces
    one worker after another, and keys with limits need a store that the workers share.

    Without a ROUTER, or until it exists, requests go to routing.default, or to the first expert
    that can be called, so you can collect a log before the first fit.

    Example: mildroute serve router --experts experts.yaml --log decisions
    """
    # By default, SIGHUP ends the process; the gateway handles the signal once it can reload.
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    overrides = {"keys": keys, "admin_port": admin_port, "admin_host": admin_host}
    config = _settings(settings, log, log_format, exploration_rate, **overrides)
    _check_authentication(host, config, open_to_all=no_keys)
    is_public = no_keys and not _is_loopback(host)
    if workers > 1:
        _check_workers(config)
    if check:
        _check_ports(host, port, config, listen=False)
        summary = _check_files(router, experts, config, traces=traces, needs_router=True)
        typer.echo(f"ok: {summary}")
        return
    _check_ports(host, port, config)
    load = ServicesLoader(router, experts, config, traces, is_public, is_worker=workers > 1)
    if workers == 1:
        _serve(load, host, port)
    else:
        _serve_workers(load, host, port, workers)


def _check_files(
    router: str | None,
    experts: Path,
    settings: GatewayConfig,
    *,
    traces: bool,
    needs_router: bool = False,
) -> str:
    """Load everything that a gateway loads, without touching a running gateway's ports and logs.

    Returns:
        A summary: the number of experts, the router and the number of clients.
    """
    from mildroute.gateway.app import create_app
    from mildroute.gateway.factory import load_gateway
    from mildroute.gateway.limits.redis import RedisLimits

    _check_log(settings.log.folder)
    with tempfile.TemporaryDirectory() as scratch:
        if settings.log.folder is not None:
            log = dataclasses.replace(settings.log, folder=Path(scratch))
            settings = dataclasses.replace(settings, log=log)
        services = load_gateway(router, experts, settings, traces=traces)
        create_app(services)
        services.tracing.close()
        predictor = services.manager.predictor
        for manager in (services.manager, services.shadow):
            if manager is not None:
                manager.close()
    if needs_router and router is not None and predictor is None:
        raise ArgumentError(
            "--check needs a stored router if ROUTER is given, got nothing at that location; fit"
            " one, or leave ROUTER out to pass requests through."
        )
    if isinstance(services.limits, RedisLimits):
        asyncio.run(_check_store(services.limits))
    chooser = "no router" if predictor is None else f"router {predictor.digest}"
    clients = "no client keys"
    if settings.keys is not None:
        clients = _pluralize(len(services.key_store), "client")
    return f"{_pluralize(len(services.experts.experts), 'expert')}, {chooser}, {clients}"


def _pluralize(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _check_workers(settings: GatewayConfig) -> None:
    """Refuse settings that several processes would multiply or cannot share."""
    from mildroute.gateway.keys import KeyStore, check_shared_limits

    if settings.admin_port is not None:
        raise ArgumentError(
            f"--workers cannot share an admin port, got {settings.admin_port}; leave the port out"
            " and protect /metrics with metrics_key_env, or leave out --workers."
        )
    if settings.routing.exploration.max_dollars_per_day is not None:
        raise ArgumentError(
            "routing.exploration.max_dollars_per_day applies to each process, so --workers would"
            " multiply it; leave out one of the two."
        )
    if settings.keys is not None:
        check_shared_limits(KeyStore.read(settings.keys), settings.store.url)


async def _check_store(limits: RedisLimits) -> None:
    """Refuse a store that responds but cannot be used; only warn of an unreachable one."""
    if not await limits.check_access():
        typer.echo(
            "note: the store does not respond; until it does, on_store_failure applies", err=True
        )
    await limits.close()


def _check_log(folder: Path | None) -> None:
    """Refuse a log that cannot be written or resumed, without creating anything."""
    from mildroute.decision.log import DECISIONS, dollars_of_today

    if folder is None:
        return
    path = next(
        path
        for path in (folder / DECISIONS, folder, *folder.absolute().parents)
        if os.path.lexists(path)
    )
    if not path.is_dir() or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise ArgumentError(
            f"the log needs a readable and writable folder, got {str(path)!r}; choose another"
            " --log."
        )
    dollars_of_today(folder, time.time())


@dataclass(frozen=True)
class ServicesLoader:
    """A picklable callable that loads a gateway's services.

    Args:
        router: Folder of the artifact, URL of a pointer to one, or ``None``.
        experts: Experts file.
        settings: Gateway settings.
        traces: Whether to send spans.
        is_public: Whether a gateway without keys accepts any ``Host`` header.
        is_worker: Whether several processes serve the port.
    """

    router: str | None
    experts: Path
    settings: GatewayConfig
    traces: bool
    is_public: bool
    is_worker: bool

    def __call__(self) -> GatewayServices:
        """Load the services."""
        from mildroute.gateway.factory import load_gateway

        services = load_gateway(self.router, self.experts, self.settings, traces=self.traces)
        return dataclasses.replace(services, is_public=self.is_public, is_worker=self.is_worker)


class WorkerApp:
    """A picklable callable that creates a worker's gateway."""

    def __init__(self, load: ServicesLoader) -> None:
        self._load = load
        self._resources: contextlib.ExitStack | None = None

    def __call__(self) -> Gateway:
        """Set up logging, load the services and create the application."""
        from mildroute.gateway.app import create_app
        from mildroute.gateway.observability.logs import log_to_stderr
        from mildroute.gateway.server import tune_interpreter

        # Keeps the log handler alive for as long as the worker runs.
        self._resources = contextlib.ExitStack()
        self._resources.enter_context(log_to_stderr(self._load.settings.logging))
        services = self._load()
        tune_interpreter()
        return create_app(services)


def _serve(load: ServicesLoader, host: str, port: int) -> None:
    from mildroute.gateway.observability.logs import log_to_stderr
    from mildroute.gateway.server import serve

    with log_to_stderr(load.settings.logging):
        services = load()
        count = len(services.experts.experts)
        serve(services, host, port, partial(_announce, load.settings, count))


def _serve_workers(load: ServicesLoader, host: str, port: int, workers: int) -> None:
    from mildroute.gateway.observability.logs import log_to_stderr
    from mildroute.gateway.server import serve_workers

    with log_to_stderr(load.settings.logging):
        # uvicorn keeps restarting a worker that fails to load, so check everything first.
        summary = _check_files(load.router, load.experts, load.settings, traces=load.traces)

        def announce(address: str) -> None:
            typer.echo(f"starting {workers} workers at {address}  ({summary})")

        serve_workers(WorkerApp(load), load.settings, host, port, workers, announce)


def _announce(settings: GatewayConfig, experts: int, address: str) -> None:
    from mildroute.gateway.observability.logs import log_event

    admin = None
    if settings.admin_port is not None:
        host = settings.admin_host
        admin = f"http://{f'[{host}]' if ':' in host else host}:{settings.admin_port}"
    if settings.logging.format == "json":
        log_event(_LOG, logging.INFO, "serving", url=address, experts=experts, admin_url=admin)
    else:
        admin_line = "" if admin is None else f"\nmetrics and administration at {admin}"
        count = _pluralize(experts, "expert")
        typer.echo(f"serving {count} at {address}  (model: mildroute){admin_line}")


def _settings(
    path: Path | None,
    log: Path | None,
    log_format: Literal["text", "json"] | None,
    exploration_rate: float | None,
    **overrides: Any,
) -> GatewayConfig:
    from mildroute.gateway.config import GatewayConfig, read_config

    config = GatewayConfig() if path is None else read_config(path)
    overrides = {name: value for name, value in overrides.items() if value is not None}
    config = dataclasses.replace(config, **overrides)
    if log is not None:
        config = dataclasses.replace(config, log=dataclasses.replace(config.log, folder=log))
    if log_format is not None:
        logs = dataclasses.replace(config.logging, format=log_format)
        config = dataclasses.replace(config, logging=logs)
    if exploration_rate is not None:
        exploration = dataclasses.replace(config.routing.exploration, rate=exploration_rate)
        routing = dataclasses.replace(config.routing, exploration=exploration)
        config = dataclasses.replace(config, routing=routing)
    return config


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_authentication(host: str, settings: GatewayConfig, *, open_to_all: bool) -> None:
    if not _is_loopback(host) and settings.keys is None and not open_to_all:
        raise ArgumentError(
            f"a gateway that others can reach needs client keys, got none for {host!r}; create them"
            " with mildroute keys new and give --keys, or add --no-keys if a proxy in front of the"
            " gateway authenticates clients."
        )


def _check_ports(host: str, port: int, settings: GatewayConfig, *, listen: bool = True) -> None:
    """Refuse ports that cannot be opened, before loading a router in vain."""
    _check_port(host, port, "--port or --host", listen=listen)
    if settings.admin_port is None:
        return
    if settings.admin_port == port:
        raise ArgumentError(
            f"--admin-port must differ from the clients' port, got {port} for both; choose another"
            " --admin-port, or leave it out."
        )
    options = "--admin-port or --admin-host"
    _check_port(settings.admin_host, settings.admin_port, options, listen=listen)


def _check_port(host: str, port: int, options: str, *, listen: bool) -> None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # With --check, a gateway may already be running on the port.
            probe.bind(address if listen else (address[0], 0, *address[2:]))
    except OSError as error:
        raise ArgumentError(
            f"the gateway must be able to listen on {host} at port {port}, got: {error.strerror};"
            f" give {options}."
        ) from None
