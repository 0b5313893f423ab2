"""gateway.yaml: the configuration of a gateway, read and checked as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from mildroute._yaml import Check, Shape, boolean, check_shape, is_finite, read_document, text
from mildroute.decision.settings import (
    AUTO_MODEL,
    DecisionLogConfig,
    EncoderConfig,
    ExplorationConfig,
    RoutingConfig,
)
from mildroute.decision.targets import TARGETS, describe_target, parse_target, target_from_setting
from mildroute.exceptions import ArgumentError
from mildroute.experts.secrets import refuse_literal_secrets, validate_variable

__all__ = [
    "AUTO_MODEL",
    "TARGETS",
    "CircuitBreakerConfig",
    "DecisionLogConfig",
    "EncoderConfig",
    "ExplorationConfig",
    "FailoverConfig",
    "GatewayConfig",
    "LoggingConfig",
    "PageConfig",
    "RequestLimits",
    "RoutingConfig",
    "SamplingConfig",
    "StoreConfig",
    "describe_target",
    "parse_target",
    "read_config",
    "target_from_setting",
]


@dataclass(frozen=True)
class CircuitBreakerConfig:
    """When the circuit of an expert opens.

    Args:
        consecutive_failures: Consecutive failures that open it.
        failure_rate: Fraction of failed calls in a window that also opens it ...
        min_calls: ... if the window has at least this many calls.
        window: Seconds over which calls are counted.
        cooldown: Seconds until one probe is allowed; doubled after each failed probe ...
        max_cooldown: ... up to this.
    """

    consecutive_failures: int = 5
    failure_rate: float = 0.5
    min_calls: int = 20
    window: float = 30.0
    cooldown: float = 1.0
    max_cooldown: float = 60.0


@dataclass(frozen=True)
class FailoverConfig:
    """Timeouts of a request, and how many experts are tried.

    Args:
        timeout: Seconds for the complete request; until the first byte if the response is streamed.
        max_attempts: Maximum number of experts to call.
        max_rounds: Maximum number of rounds over these experts if all fail in a transient way: a
            refused connection, a 5xx, a 429, an error as an answer. The pause between rounds is 0.1
            to 0.5 seconds, or what Retry-After or an open circuit demands, up to 2.5; a longer wait
            ends the rounds. 1 calls each expert once.
        connect_timeout: Seconds to connect to an expert.
        first_byte_timeout: Seconds until the first byte of a stream; then the next expert is
            called.
        attempt_timeout: Seconds that an expert has for a non-streaming response; then the next one
            is called. None gives it what is left of ``timeout``.
        idle_timeout: Seconds without a byte in the middle of a response.
        hedge_delay: Seconds after which the next expert is called in parallel, or none; the
            response that starts first is used.
        shutdown_delay: Seconds for which a gateway that is stopping still accepts requests, while
            ``/readyz`` returns 503, ``draining``, so that a load balancer has time to remove it.
        drain_timeout: Seconds that in-flight requests then have to finish.
    """

    timeout: float = 120.0
    max_attempts: int = 3
    max_rounds: int = 5
    connect_timeout: float = 3.0
    first_byte_timeout: float = 60.0
    attempt_timeout: float | None = None
    idle_timeout: float = 60.0
    hedge_delay: float | None = None
    shutdown_delay: float = 0.0
    drain_timeout: float = 30.0


@dataclass(frozen=True)
class RequestLimits:
    """What a client may send.

    Args:
        max_header_bytes: Maximum bytes of a request's headers.
        header_timeout: Seconds in which the headers must arrive, also after the connection was
            opened.
        max_body_bytes: Maximum bytes of a request's body.
        body_timeout: Seconds in which the body must arrive.
        max_connections: Concurrent client connections, with or without a request in flight; beyond
            this, the connection that has been idle longest is closed. Never more than half of the
            process's file descriptors.
        max_in_flight: Concurrent requests; more are rejected with 503 and Retry-After. With several
            client keys, no key may hold more slots than are free.
        max_bytes_in_flight: Total bytes of the bodies of these requests, shared in the same way.
        max_response_bytes: Maximum bytes of a non-streaming response.
        max_route_inputs: Maximum inputs of one ``POST /v1/route``.
        max_output_tokens: Response tokens reserved in a client's budget if its request sets no
            maximum: the most that your experts generate by default.
        disconnect_timeout: Seconds for which a response is still read after its client disconnects,
            so that the client pays for it; 0 ends the call at once and charges what is known, or
            what was reserved ...
        disconnect_max_bytes: ... and bytes of it, if it is streamed.
    """

    max_header_bytes: int = 64 << 10
    header_timeout: float = 10.0
    max_body_bytes: int = 20 << 20
    body_timeout: float = 30.0
    max_connections: int = 4096
    max_in_flight: int = 1024
    max_bytes_in_flight: int = 512 << 20
    max_response_bytes: int = 64 << 20
    max_route_inputs: int = 1000
    max_output_tokens: int = 4096
    disconnect_timeout: float = 30.0
    disconnect_max_bytes: int = 8 << 20


@dataclass(frozen=True)
class SamplingConfig:
    """Requests that are also sent to the other experts and judged, to learn from.

    Sampling runs in the background after the response has been sent. Only the judge sees the
    answers.

    Args:
        rate: Fraction of the chat completions that the gateway routes or passes through. Requests
            are excluded if they name their expert, have tools or images, request several choices,
            exceed 64 KiB or have the header ``x-mildroute-sampling`` with any value but ``on``.
        max_dollars_per_day: Dollars per UTC day that sampled calls and their judging may cost;
            required. Gateways with the same folder of the log share it.
        judge: Name of the judge, as ``mildroute collect --judge`` takes it; one that needs no
            reference, such as ``graded``.
        judge_settings: Settings of the judge; ``expert`` names the expert to call, from
            ``experts.yaml`` or its ``judges``.
        experts: Experts to call; by default all that the gateway can call.
        concurrency: Requests sampled at the same time.
        max_queue_size: Maximum number of requests that may wait for sampling; any more are not
            sampled.
    """

    rate: float = 0.0
    max_dollars_per_day: float | None = None
    judge: str | None = None
    judge_settings: Mapping[str, Any] = field(default_factory=dict)
    experts: tuple[str, ...] = ()
    concurrency: int = 2
    max_queue_size: int = 100


@dataclass(frozen=True)
class LoggingConfig:
    """What is written to stderr.

    Args:
        format: ``text``, or ``json`` for one JSON object per line.
        level: Lowest level of the gateway's own log entries; those of its libraries are written
            from ``warning`` up.
        access: Whether to write one entry per request.
    """

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    access: bool = False


@dataclass(frozen=True)
class PageConfig:
    """The page in the browser, at ``/``, and its figures, at ``/status``.

    Args:
        enabled: Whether to serve the page; ``page: false`` disables it. Without ``admin_key_env``
            and ``metrics_key_env``, only browsers on the same machine can open the page, and only
            if no client keys are configured.
        learning: Folder or URL of the state of ``mildroute learn``, to show it, or none.
    """

    enabled: bool = True
    learning: str | Path | None = None


@dataclass(frozen=True)
class StoreConfig:
    """Redis or Valkey server that several gateways share, so that the limits of keys hold together.

    Args:
        url: Address, such as ``redis://host:6379/0``, or ``rediss://`` with TLS; with none, each
            process has its own limits. ``store: redis://host`` sets it alone.
        password_env: Environment variable of its password, or none.
        prefix: Prefix of the names of all entries; gateways with the same prefix share them.
    """

    url: str | None = None
    password_env: str | None = None
    prefix: str = "mildroute"


@dataclass(frozen=True)
class GatewayConfig:
    """The configuration of a gateway.

    Args:
        routing: Which expert serves a request.
        breaker: When the circuit of an expert opens.
        failover: Timeouts of a request, and how many experts are tried.
        encoder: How inputs become vectors.
        limits: What a client may send.
        log: The decision log.
        sampling: Requests that are also sent to the other experts and judged.
        logging: What is written to stderr.
        store: Redis or Valkey that several gateways share.
        on_store_failure: How requests of keys with limits are treated while the store is
            unreachable: ``closed`` rejects them with 503, ``open`` admits them.
        page: The page in the browser.
        keys: File of hashed client keys, which is reloaded when it changes. With none, every client
            that can reach the gateway may use it.
        admin_key_env: Environment variable of the key for ``/admin``, or none to disable
            ``/admin``.
        admin_port: Port of ``/metrics``, ``/admin`` and the page, which are then not served on the
            client port; ``/healthz`` and ``/readyz`` are on both. None to use one port for
            everything.
        admin_host: Address to listen on for that port.
        metrics_key_env: Environment variable of the key for ``/metrics``, or none, so that every
            client that can reach the gateway may read the metrics. It may be the same variable as
            ``admin_key_env``.
        shadow_router: Folder of a second router whose choices are only logged, or none.
        router_public_keys: PEM file with one or more Ed25519 public keys; a router, canary or
            shadow router without a signature by one of them is rejected. Without this file, no
            signature is needed.
        baseline: Expert that savings are measured against; by default the one that experts.yaml
            names, or the most expensive.
        reload_interval: Seconds between checks of the artifact's folder, or none.

    Example:
        >>> GatewayConfig().routing.session_affinity
        True
    """

    routing: RoutingConfig = field(default_factory=RoutingConfig)
    breaker: CircuitBreakerConfig = field(default_factory=CircuitBreakerConfig)
    failover: FailoverConfig = field(default_factory=FailoverConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    limits: RequestLimits = field(default_factory=RequestLimits)
    log: DecisionLogConfig = field(default_factory=DecisionLogConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    logging: LoggingConfig = field(default_factory=LoggingConfig)
    store: StoreConfig = field(default_factory=StoreConfig)
    on_store_failure: Literal["closed", "open"] = "closed"
    page: PageConfig = field(default_factory=PageConfig)
    keys: Path | None = None
    admin_key_env: str | None = None
    admin_port: int | None = None
    admin_host: str = "127.0.0.1"
    metrics_key_env: str | None = None
    shadow_router: Path | None = None
    router_public_keys: Path | None = None
    baseline: str | None = None
    reload_interval: float | None = None


_MAY_BE_ZERO = {
    "disconnect_timeout",
    "disconnect_max_bytes",
    "drain_timeout",
    "shutdown_delay",
    "rate",
    "min_quality",
    "switch_threshold",
    "cache_size",
}
_AT_MOST = {
    **dict.fromkeys(("rate", "min_quality", "failure_rate", "switch_threshold"), 1),
    "admin_port": 65535,
}
# The one setting of a part that may stand in its place: ``store: redis://host``.
_SHORT_FORMS = {StoreConfig: "url", ExplorationConfig: "rate", PageConfig: "enabled"}


def read_config(path: str | Path) -> GatewayConfig:
    r"""Read a file of settings; what it does not name keeps its default.

    Paths are relative to the file.
    """
    path = Path(path)
    document = read_document(path)
    if document.value is None:
        return GatewayConfig()
    refuse_literal_secrets(document)
    check_shape(document, (), document.value, _shape_of(GatewayConfig))
    config: GatewayConfig = _build(GatewayConfig, document.value, path.parent)
    return config


def _shape_of(kind: type[Any]) -> Shape:
    hints = get_type_hints(kind)
    return Shape(
        {
            field.name: _check_for(field.name, hints[field.name])
            for field in dataclasses.fields(kind)
        }
    )


def _check_for(name: str, hint: Any) -> Check | Shape | tuple[Check, Shape]:
    if hint in _SHORT_FORMS:
        shape = _shape_of(hint)
        return shape.checks[_SHORT_FORMS[hint]], shape  # type: ignore[return-value]
    if dataclasses.is_dataclass(hint):
        return _shape_of(hint)  # type: ignore[arg-type]
    if name in _CHECKS_BY_NAME or name.endswith("_key_env"):
        return _CHECKS_BY_NAME.get(name, validate_variable)
    if get_origin(hint) is Literal:
        return one_of(get_args(hint))
    if "Mapping" in str(hint):
        return _targets if "None" in str(hint) else _some_targets
    if hint is bool:
        return boolean
    if "Path" in str(hint) or "str" in str(hint):
        return text
    return _number(name, whole="float" not in str(hint))


def one_of(words: Sequence[str]) -> Check:
    """Refuse what is none of these words."""

    def check(value: Any) -> None:
        if value not in words:
            raise ArgumentError(f"it must be one of {', '.join(words)}, got {value!r:.60}.")

    return check


def _store_url(value: Any) -> None:
    """Where a store is; never with its password."""
    text(value)
    try:
        url = urlsplit(value)
        is_valid = url.scheme in ("redis", "rediss") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not (url.path.strip("/") or "0").isdecimal():
        # The value may hold a password and is not shown.
        raise ArgumentError(
            "it must be the URL of a Redis or Valkey; write redis://host:6379/0, or rediss://..."
            " with TLS."
        )
    if url.password is not None:
        raise ArgumentError(
            "it must hold no password (not shown); name its environment variable under"
            " store.password_env."
        )


def _names(value: Any) -> None:
    if not isinstance(value, list):
        raise ArgumentError(f"it must be a list of names, got {value!r:.60}; write [small, large].")
    for name in value:
        text(name)


def _mapping(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"it must be a mapping from settings to values, got {value!r:.60}.")


_CHECKS_BY_NAME: dict[str, Check] = {
    "url": _store_url,
    "password_env": validate_variable,
    "experts": _names,
    "judge_settings": _mapping,
}


def _number(name: str, *, whole: bool) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if (
            isinstance(value, bool)
            or not isinstance(value, int if whole else (int, float))
            or not is_finite(value)
        ):
            raise ArgumentError(
                f"it must be a {'whole ' if whole else ''}number, got {value!r:.60}."
            )
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            raise ArgumentError(
                f"it must be {'at least' if name in _MAY_BE_ZERO else 'more than'} 0, got {value}."
            )
        if value > _AT_MOST.get(name, math.inf):
            raise ArgumentError(f"it must be at most {_AT_MOST[name]}, got {value}.")

    return check


def _targets(value: Any) -> None:
    """Names and targets."""
    if not isinstance(value, Mapping):
        raise ArgumentError(
            f"it must be a mapping from names to targets, got {value!r:.60}; write  cheap:"
            " {quality: 0.95}  below it."
        )
    for name, target in value.items():
        text(name)
        if not name.isascii():
            raise ArgumentError(
                f"{name!r:.60}: a name must be ASCII, for it comes in a header; write it in plain"
                " letters."
            )
        if target is None:
            continue
        try:
            target_from_setting(target)
        except ArgumentError as error:
            raise ArgumentError(f"{name!r:.60}: {error}") from None


def _some_targets(value: Any) -> None:
    """Names and targets, none of them empty."""
    _targets(value)
    for name, target in value.items():
        if target is None:
            raise ArgumentError(
                f"{name!r:.60}: a preset must have a target, got none; write  {name}: {{quality:"
                " 0.95}."
            )


def _build(kind: type[Any], values: Mapping[str, Any], folder: Path) -> Any:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints[name]
        if hint in _SHORT_FORMS and not isinstance(value, Mapping):
            given[name] = hint(**{_SHORT_FORMS[hint]: value})
        elif dataclasses.is_dataclass(hint):
            given[name] = _build(hint, value, folder)  # type: ignore[arg-type]
        elif "Path" in str(hint):
            given[name] = _located(folder, value)
        else:
            given[name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def _located(folder: Path, value: str) -> str | Path:
    """A path relative to the folder; URLs as they are."""
    return value if "://" in value else folder / value
