"""``mildroute decide``: serve decisions without calling experts."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mildroute.cli._options import Budget, PriceWeight, Quality, target_of
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.decision.service import DecisionService
    from mildroute.experts.config import ExpertFile

__all__ = ["serve_decisions_of"]


_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MAX_PORT = 65535


def serve_decisions_of(
    router: Annotated[
        str, typer.Argument(metavar="ROUTER", help="Folder or URL of a stored router.")
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)
    ] = 8100,
    ext_proc: Annotated[
        str | None,
        typer.Option(
            help=(
                "Answer Envoy's ext_proc calls at this port or address instead of HTTP requests;"
                " port 0 picks a free one."
            ),
            metavar="[HOST:]PORT",
        ),
    ] = None,
    experts: Annotated[
        Path | None,
        typer.Option(
            help="Experts file, with prices and context lengths; defaults to ROUTER's experts.",
            metavar="experts.yaml",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            help="File that maps each label, such as a tier, to an expert or a list of experts.",
            metavar="labels.yaml",
        ),
    ] = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    log: Annotated[
        Path | None, typer.Option(help="Folder for the decision log; no log by default.")
    ] = None,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Log the texts as well, to learn from them.")
    ] = False,
    exploration_rate: Annotated[
        float, typer.Option(help="Fraction of decisions drawn at random.", min=0, max=1)
    ] = 0.0,
    exploration_dollars: Annotated[
        float | None,
        typer.Option(help="Maximum expected cost of exploration, in dollars per day.", min=0),
    ] = None,
    key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable that holds the key clients must send."),
    ] = None,
    no_key: Annotated[
        bool, typer.Option("--no-key", help="Allow any client on a non-loopback address.")
    ] = False,
) -> None:
    """Serve a stored ROUTER's decisions to gateways that query a decision model.

    POST /v1/systemone and /v1/decisions answer a choice between experts. The server follows new
    versions of the artifact and calls no expert. With --ext-proc, it decides for Envoy.

    Example: mildroute decide router --port 8100 --quality 0.95 --log decisions
    """
    from mildroute.decision.service import DecisionService, ServiceConfig
    from mildroute.decision.settings import DecisionLogConfig, ExplorationConfig, RoutingConfig
    from mildroute.experts.config import read_experts

    envoy_address = None if ext_proc is None else _read_address(ext_proc)
    if envoy_address is not None:
        host = envoy_address[0]
        if key_env is not None:
            raise ArgumentError(
                "--key-env has no meaning for Envoy, which sends no key; leave it out."
            )
    if key_env is None and host not in _LOOPBACK and not no_key:
        raise ArgumentError(
            f"a server that others can reach needs a key, got none for {host!r}; give --key-env,"
            " or --no-key if a proxy in front of it authenticates clients."
        )
    key = None if key_env is None else _read_key(key_env)
    label_experts = None if labels is None else _read_labels(labels)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    exploration = ExplorationConfig(rate=exploration_rate, max_dollars_per_day=exploration_dollars)
    config = ServiceConfig(
        target=target_of(budget, quality, price_weight),
        routing=RoutingConfig(exploration=exploration),
        log=DecisionLogConfig(log, log_prompts),
    )
    file = None if experts is None else read_experts(experts)
    service = DecisionService.load(router, config, file)
    if file is None and service.manager.predictor is None:
        service.close()
        raise ArgumentError(
            f"ROUTER must be a stored router, got nothing at {router!r}; fit one, or give --experts"
            " to send everything to the first expert until there is one."
        )

    if envoy_address is not None:
        _serve_envoy(service, *envoy_address, file)
        return
    from mildroute.integrations.decision_server import serve_decisions

    def announce(address: str) -> None:
        typer.echo(f"deciding between {', '.join(service.experts)} at {address}/v1/systemone")

    serve_decisions(service, host, port, announce, labels=label_experts, key=key)


def _read_address(text: str) -> tuple[str, int]:
    """Return the host and the port of an address; the host defaults to loopback."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > _MAX_PORT:
        raise ArgumentError(
            f"--ext-proc must be a port or an address with a port, got {text!r}; give 9090 or"
            " 0.0.0.0:9090."
        )
    return host.strip("[]") or _LOOPBACK[1], int(port)


def _serve_envoy(
    service: DecisionService, host: str, port: int, experts: ExpertFile | None
) -> None:
    """Serve decisions to Envoy until SIGINT or SIGTERM."""
    from mildroute.integrations.envoy.server import run, serve

    host_in_url = f"[{host}]" if ":" in host else host
    specs = () if experts is None else experts.experts
    models = {each.name: str(each.settings.get("model") or each.name) for each in specs}

    def announce(port: int) -> None:
        names = ", ".join(service.experts)
        typer.echo(f"deciding between {names} for Envoy at {host_in_url}:{port}")

    with service:
        run(serve(service, f"{host_in_url}:{port}", announce, models))


def _read_key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise ArgumentError(
            f"the environment variable {variable} must hold the key, got nothing; set it."
        )
    return key


def _read_labels(path: Path) -> dict[str, Any]:
    from mildroute._yaml import read_document

    document = read_document(path)
    value = document.value
    if not isinstance(value, dict) or not all(_are_names(each) for each in value.values()):
        raise ArgumentError(
            f"{path.name} must map each label to an expert or a list of experts, such as SIMPLE:"
            " small."
        )
    return {str(label): names for label, names in value.items()}


def _are_names(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) for name in names)
