"""The configuration of a gateway, read from ``gateway.yaml``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

from mildroute._optional import needs_extra
from mildroute._short_form import ShortForm
from mildroute._yaml import YamlDocument, read_document
from mildroute.configuration import MODEL, check_document
from mildroute.decision.settings import (
    AUTO_MODEL,
    DecisionLogConfig,
    EncoderConfig,
    ExplorationConfig,
    RoutingConfig,
)
from mildroute.decision.targets import TARGETS, describe_target, parse_target, target_from_setting
from mildroute.exceptions import ArgumentError
from mildroute.experts.literal_secrets import refuse_literal_secrets
from mildroute.experts.secrets import validate_variable

with needs_extra("pydantic", extra="serve", user="mildroute.gateway"):
    from pydantic import AfterValidator, BeforeValidator, Field
    from pydantic.dataclasses import dataclass

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
    "RequestLimits",
    "RoutingConfig",
    "SamplingConfig",
    "StoreConfig",
    "describe_target",
    "parse_target",
    "read_config",
    "target_from_setting",
]

T = TypeVar("T")

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(gt=0)]
Port = Annotated[int, Field(gt=0, le=65535)]
Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, BeforeValidator(validate_variable, json_schema_input_type=str)]


def _validate_store_url(value: str) -> str:
    """Return the URL if it is that of a Redis or Valkey server and contains no password."""
    try:
        url = urlsplit(value)
        is_valid = url.scheme in ("redis", "rediss") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid or not (url.path.strip("/") or "0").isdecimal():
        # The value may contain a password and is not shown.
        raise ArgumentError(
            "it must be the URL of a Redis or Valkey server; write redis://host:6379/0, or"
            " rediss://... with TLS."
        )
    if url.password is not None:
        raise ArgumentError(
            "it must not contain a password (not shown); name its environment variable under"
            " store.password_env."
        )
    return value


StoreURL = Annotated[str, AfterValidator(_validate_store_url)]


@dataclass(frozen=True, config=MODEL)
class CircuitBreakerConfig:
    """The conditions under which the circuit of an expert opens."""

    consecutive_failures: Count = 5
    """Consecutive failures that open the circuit, of at least two different requests."""

    failure_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of failed calls in a window that also opens the circuit, if the window has at least
    ``min_calls`` calls."""

    min_calls: Count = 20
    """Number of calls in a window below which ``failure_rate`` is ignored."""

    window: Positive = 30.0
    """Seconds over which calls are counted."""

    cooldown: Positive = 1.0
    """Seconds until one probe is allowed; doubled after each failed probe, up to
    ``max_cooldown``."""

    max_cooldown: Positive = 60.0
    """Maximum seconds between two probes."""


@dataclass(frozen=True, config=MODEL)
class FailoverConfig:
    """Timeouts of a request, and the number of experts to try."""

    timeout: Positive = 120.0
    """Seconds for the complete request; until the first byte if the response is streamed."""

    max_attempts: Count = 3
    """Maximum number of experts to call."""

    max_rounds: Count = 5
    """Maximum number of rounds over these experts if all fail in a transient way (a refused
    connection, a 5xx, a 429, an error as an answer). Rounds are 0.1 to 0.5 seconds apart, or as
    long as Retry-After or an open circuit demands, up to 2.5; a longer wait ends the rounds. 1
    calls each expert once."""

    connect_timeout: Positive = 3.0
    """Seconds to connect to an expert."""

    first_byte_timeout: Positive = 60.0
    """Seconds until the first byte of a stream; then the next expert is called."""

    attempt_timeout: Positive | None = None
    """Seconds that an expert has for a non-streaming response; then the next one is called. If
    unset, an expert has the rest of ``timeout``."""

    idle_timeout: Positive = 60.0
    """Seconds without a byte in the middle of a response."""

    shutdown_delay: NotNegative = 0.0
    """Seconds for which a gateway that is stopping still accepts requests. Meanwhile ``/readyz``
    returns 503 with the reason ``draining``, so that a load balancer has time to remove it."""

    drain_timeout: NotNegative = 30.0
    """Seconds that in-flight requests then have to finish."""


@dataclass(frozen=True, config=MODEL)
class RequestLimits:
    """Limits on what a client may send."""

    max_body_mb: Positive = 8.0
    """Maximum megabytes of a request's body."""

    body_timeout: Positive = 30.0
    """Seconds in which the body must arrive."""

    max_in_flight: Count = 1024
    """Maximum concurrent requests; more are rejected with 503 and Retry-After. With several client
    keys, no key may hold more slots than are free."""

    max_bytes_in_flight: Count = 512 << 20
    """Total bytes of the bodies of these requests, shared in the same way."""

    max_response_bytes: Count = 64 << 20
    """Maximum bytes of a non-streaming response."""

    max_route_inputs: Count = 1000
    """Maximum inputs of one ``POST /v1/route``."""

    max_output_tokens: Count = 4096
    """Response tokens reserved in a client's budget if its request sets no maximum: as many as your
    experts generate at most by default."""

    disconnect_timeout: NotNegative = 30.0
    """Seconds for which a response is still read after its client disconnects, so that the client
    pays for it; 0 ends the call at once and charges its known cost, or the reserved amount."""

    disconnect_max_bytes: Annotated[int, Field(ge=0)] = 8 << 20
    """Maximum bytes of a stream that are still read after its client disconnects."""


@dataclass(frozen=True, config=MODEL)
class SamplingConfig:
    """A share of requests that are also sent to the other experts and judged, as training data.

    Sampling runs in the background after the response has been sent. Only the judge sees the
    answers.
    """

    rate: Share = 0.0
    """Share of the chat completions that the gateway routes or passes through. Requests are
    excluded if they name their expert, have tools or images, request several choices, exceed 64 KiB
    or have the header ``x-mildroute-sampling`` with any value but ``on``."""

    max_dollars_per_day: Positive | None = None
    """Dollars per UTC day that sampled calls and their judging may cost; required if ``rate`` is
    set. Gateways with the same folder of the log share it."""

    judge: Text | None = None
    """Name of a judge that ``mildroute collect --judge`` accepts and that needs no reference, such
    as ``graded``."""

    judge_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the judge; ``expert`` names the expert to call, from ``experts.yaml`` or its
    ``judges``."""

    experts: tuple[Text, ...] = ()
    """Experts to call; defaults to all that the gateway can call."""

    concurrency: Count = 2
    """Requests sampled at the same time."""

    max_queue_size: Count = 100
    """Maximum number of requests that may wait for sampling; further ones are not sampled."""


@dataclass(frozen=True, config=MODEL)
class LoggingConfig:
    """The gateway's own log, on stderr."""

    format: Literal["text", "json"] = "text"
    """Format of an entry: ``text``, or ``json`` for one JSON object per line."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level of the gateway's own entries; those of its libraries are written at ``warning``
    and above."""

    access: bool = False
    """Write one entry per request."""


@dataclass(frozen=True, config=MODEL)
class StoreConfig:
    """A Redis or Valkey server through which several gateways share the limits of client keys."""

    url: StoreURL | None = None
    """Address, such as ``redis://host:6379/0``, or ``rediss://`` with TLS; ``store: redis://host``
    sets only the address. Without one, each process has its own limits."""

    password_env: Variable | None = None
    """Environment variable that holds the password."""

    prefix: Text = "mildroute"
    """Prefix of the names of all entries; gateways with the same prefix share them."""


@dataclass(frozen=True, config=MODEL)
class GatewayConfig:
    """The configuration of a gateway.

    Example:
        >>> GatewayConfig().routing.session_affinity
        True
    """

    routing: RoutingConfig = RoutingConfig()
    """The choice of the expert that serves a request."""

    breaker: CircuitBreakerConfig = CircuitBreakerConfig()
    """The conditions under which the circuit of an expert opens."""

    failover: FailoverConfig = FailoverConfig()
    """Timeouts of a request, and the number of experts to try."""

    encoder: EncoderConfig = EncoderConfig()
    """The conversion of inputs to vectors."""

    limits: RequestLimits = RequestLimits()
    """Limits on what a client may send."""

    log: DecisionLogConfig = DecisionLogConfig()
    """The decision log."""

    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """Requests that are also sent to the other experts and judged."""

    logging: LoggingConfig = LoggingConfig()
    """The gateway's own log, on stderr."""

    store: Annotated[StoreConfig, ShortForm(str, ("url",))] = StoreConfig()
    """A Redis or Valkey server that several gateways share."""

    on_store_failure: Literal["closed", "open"] = "closed"
    """Treatment of requests from keys with limits while the store is unreachable: ``closed``
    rejects them with 503, ``open`` admits them."""

    page: bool = True
    """Serve the page in the browser, at ``/``, and its figures, at ``/status``. Without
    ``admin_key_env`` and ``metrics_key_env``, only browsers on the same machine can open the page,
    and only if no client keys are configured."""

    keys: Path | None = None
    """File of hashed client keys, which is reloaded when it changes. Without it, every client that
    can reach the gateway may use it."""

    admin_key_env: Variable | None = None
    """Environment variable that holds the key for ``/admin``; without one, ``/admin`` is
    disabled."""

    admin_port: Port | None = None
    """Port of ``/metrics``, ``/admin`` and the page, which are then not served on the client port;
    ``/healthz`` and ``/readyz`` are on both. If unset, one port serves everything."""

    admin_host: Text = "127.0.0.1"
    """Address on which ``admin_port`` listens."""

    metrics_key_env: Variable | None = None
    """Environment variable that holds the key for ``/metrics``, which may be the same as
    ``admin_key_env``. Without one, every client that can reach the gateway may read the metrics."""

    shadow_router: Path | None = None
    """Folder of a second router whose choices are only logged."""

    baseline: Text | None = None
    """Expert that savings are measured against; defaults to the one that experts.yaml names, or the
    most expensive."""

    reload_interval: Positive | None = None
    """Seconds between checks of the artifact's folder."""


def read_config(path: str | Path) -> GatewayConfig:
    """Read ``gateway.yaml``; omitted settings keep their defaults.

    Paths are relative to the file.
    """
    path = Path(path)
    document = read_document(path)
    refuse_literal_secrets(document)
    config = check_document(document, GatewayConfig)
    _check_names(document, "presets", config.routing.presets)
    _check_names(document, "routes", config.routing.routes)
    return _locate_paths(config, path.parent)


def _check_names(document: YamlDocument, setting: str, targets: Mapping[str, Any]) -> None:
    """Reject names of targets that cannot be sent in a header."""
    for name in targets:
        if not name or not name.isascii():
            raise document.error(
                ("routing", setting, name),
                f"routing.{setting}: a name must be ASCII, because it is sent in a header, got"
                f" {name!r:.60}; write it in plain letters.",
            )


def _locate_paths(section: T, folder: Path) -> T:
    """Return a section of a configuration with its relative paths resolved against a folder."""
    changes: dict[str, Any] = {}
    for setting in dataclasses.fields(section):  # type: ignore[arg-type]
        value = getattr(section, setting.name)
        if isinstance(value, Path):
            changes[setting.name] = folder / value
        elif dataclasses.is_dataclass(value):
            changes[setting.name] = _locate_paths(value, folder)
    return dataclasses.replace(section, **changes)  # type: ignore[type-var]
