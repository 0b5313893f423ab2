"""gateway.yaml: the configuration of a gateway, read and checked as a whole."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

from mildroute._fit import Target, TargetKind
from mildroute._yaml import Check, Shape, check_shape, read_document, text
from mildroute.exceptions import ArgumentError
from mildroute.experts.secrets import checked_variable, refuse_literal_secrets
from mildroute.routers.operating_point import HIGHEST_QUALITY, quality_hint

__all__ = [
    "TARGETS",
    "CircuitBreakerConfig",
    "DecisionLogConfig",
    "EncoderConfig",
    "FailoverConfig",
    "GatewayConfig",
    "RequestLimits",
    "RoutingConfig",
    "read_config",
    "target_named",
    "target_of_setting",
    "words_of",
]


# How a gateway behaves: every figure in one place, with defaults that are safe to start with.


@dataclass(frozen=True)
class RoutingConfig:
    """Who is asked.

    Args:
        default: Expert for inputs that the router cannot judge; the best single expert of the training data where none is named.
        keep_conversations: Whether a conversation stays with its expert.
        leave_gain: A conversation changes its expert only if another one's probability is higher by more than this.
        memory: Conversations that are remembered.
        forget_after: Seconds after which a silent conversation is forgotten.
        explore: Share of requests whose expert is drawn at random; first turns of conversations alone.
        presets: Targets by name, for the header ``x-mildroute-preset``: a price weight, or one of ``{quality: 0.95}``, ``{budget: 1.5}``
            and ``{price_weight: 7}``.
        routes: Further names under ``model`` that mean "choose", each with the target to choose at, likewise, or none.
    """

    default: str | None = None
    keep_conversations: bool = True
    leave_gain: float = 0.3
    memory: int = 100_000
    forget_after: float = 3600.0
    explore: float = 0.0
    presets: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    routes: Mapping[str, float | Mapping[str, float] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class CircuitBreakerConfig:
    """When an expert is left alone.

    Args:
        failures: Failures in a row that open the circuit.
        share: Share of failures among the calls of a window that opens it, too ...
        least: ... if there were at least so many calls.
        window: Seconds of the window.
        rest: Seconds until one probe is let through; doubled after each failed probe ...
        longest_rest: ... up to this.
    """

    failures: int = 5
    share: float = 0.5
    least: int = 20
    window: float = 30.0
    rest: float = 1.0
    longest_rest: float = 60.0


@dataclass(frozen=True)
class FailoverConfig:
    """How long and how often a request is tried.

    Args:
        deadline: Seconds for the whole request; until the first byte where the answer comes in pieces.
        attempts: Experts that are asked at most.
        connect: Seconds until there is a connection.
        first_byte: Seconds until an expert's first byte; then the next one is asked.
        idle: Seconds without a byte in the middle of an answer.
        hedge_after: Seconds after which the next expert is asked besides, or none; whoever speaks first is heard.
        notice: Seconds for which a gateway that is told to stop still takes requests, while ``/readyz`` answers 503, ``draining``: a load
            balancer that asks it needs as long to look elsewhere.
        drain: Seconds that requests under way are given then.

    Example:
        >>> FailoverConfig().hedge_after is None
        True
    """

    deadline: float = 120.0
    attempts: int = 3
    connect: float = 3.0
    first_byte: float = 60.0
    idle: float = 60.0
    hedge_after: float | None = None
    notice: float = 0.0
    drain: float = 30.0


@dataclass(frozen=True)
class EncoderConfig:
    """How inputs become vectors on the request's way.

    Args:
        budget: Seconds in which a vector must be there; else the safe default answers.
        batch: Inputs that are encoded together at most.
        queue: Inputs that may wait; more are answered by the safe default at once.
        threads: Threads that encode.
        remembered: Vectors that are kept by content; 0 keeps none.
        characters: Characters of an input that are read: its beginning and its end.
    """

    budget: float = 0.25
    batch: int = 16
    queue: int = 256
    threads: int = 1
    remembered: int = 10_000
    characters: int = 8_000


@dataclass(frozen=True)
class RequestLimits:
    """What a client may send.

    Args:
        head: Bytes of a request's line and headers.
        head_seconds: Seconds in which they must have arrived, also after the connection was opened.
        body: Bytes of a request.
        body_seconds: Seconds in which it must have arrived.
        connections: Requests at the same time; more are refused with 503 and Retry-After.
        answer: Bytes of an answer that does not come in pieces.
        batch: Inputs of one ``POST /v1/route``.
    """

    head: int = 64 << 10
    head_seconds: float = 10.0
    body: int = 20 << 20
    body_seconds: float = 30.0
    connections: int = 1024
    answer: int = 64 << 20
    batch: int = 1000


@dataclass(frozen=True)
class DecisionLogConfig:
    """What is written down of decisions.

    Args:
        folder: Where, or none for no log.
        keep_text: Whether the text that was routed is written down, too.
        rows: Lines of a file, after which a new one begins.
    """

    folder: Path | None = None
    keep_text: bool = False
    rows: int = 100_000


@dataclass(frozen=True)
class GatewayConfig:
    """A gateway.

    Args:
        policy: Who is asked.
        breaker: When an expert is left alone.
        failover: How long and how often a request is tried.
        encoder: How inputs become vectors.
        limits: What a client may send.
        log: What is written down.
        keys: File of hashed client keys, or none: then everyone who can reach the gateway may use it. It is read again with the router.
        admin_key_env: Environment variable of the key for ``/admin``, or none: then there is no ``/admin``.
        metrics_key_env: Environment variable of the key for ``/metrics``, or none: then everyone who can reach the gateway may read them.
            It may be the same variable.
        shadow: Folder of a second router that decides silently, or none.
        baseline: Expert whose bill the savings are counted against; the most expensive where none is named.
        watch: Seconds between looks at the artifact's folder, or none.

    Example:
        >>> GatewayConfig().policy.keep_conversations
        True
    """

    policy: RoutingConfig = field(default_factory=RoutingConfig)
    breaker: CircuitBreakerConfig = field(default_factory=CircuitBreakerConfig)
    failover: FailoverConfig = field(default_factory=FailoverConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    limits: RequestLimits = field(default_factory=RequestLimits)
    log: DecisionLogConfig = field(default_factory=DecisionLogConfig)
    keys: Path | None = None
    admin_key_env: str | None = None
    metrics_key_env: str | None = None
    shadow: Path | None = None
    baseline: str | None = None
    watch: float | None = None


# gateway.yaml: how a gateway behaves, read and checked as a whole.


_MAY_BE_ZERO = {"drain", "notice", "explore", "leave_gain", "remembered"}
_SHARES = {"explore", "share", "leave_gain"}
"""Settings that must be at most 1."""


def read_config(path: str | Path) -> GatewayConfig:
    r"""Read a file of settings; what it does not name keeps its default. Paths are relative to the file.

    Args:
        path: The YAML file.

    Returns:
        The settings.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "gateway.yaml")
        >>> _ = path.write_text("policy: {explore: 0.05}\nfailover: {attempts: 2}\n")
        >>> read_config(path).policy.explore
        0.05
        >>> _ = path.write_text("policy:\n  explore: 5\n")
        >>> read_config(path)
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: gateway.yaml:2: 'explore': it must be at most 1, got 5.
    """
    path = Path(path)
    document = read_document(path)
    if document.value is None:
        return GatewayConfig()
    refuse_literal_secrets(document)
    check_shape(document, (), document.value, _shape_of(GatewayConfig))
    made: GatewayConfig = _made(GatewayConfig, document.value, path.parent)
    return made


def _shape_of(kind: type[Any]) -> Shape:
    hints = get_type_hints(kind)
    return Shape({field.name: _rule_of(field.name, hints[field.name]) for field in dataclasses.fields(kind)})


def _rule_of(name: str, hint: Any) -> Check | Shape:
    if dataclasses.is_dataclass(hint):
        return _shape_of(hint)  # type: ignore[arg-type]
    if name.endswith("_key_env"):
        return checked_variable
    if "Mapping" in str(hint):
        return _targets if "None" in str(hint) else _some_targets
    if hint is bool:
        return _truth
    if "Path" in str(hint) or "str" in str(hint):
        return text
    return _number(name, whole="float" not in str(hint))


def _number(name: str, *, whole: bool) -> Callable[[Any], None]:
    def check(value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not math.isfinite(value):
            raise ArgumentError(f"it must be a {'whole ' if whole else ''}number, got {value!r:.60}.")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            raise ArgumentError(f"it must be {'at least' if name in _MAY_BE_ZERO else 'more than'} 0, got {value}.")
        if name in _SHARES and value > 1:
            raise ArgumentError(f"it must be at most 1, got {value}.")

    return check


def _truth(value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"it must be true or false, got {value!r:.60}.")


def _targets(value: Any) -> None:
    """Names and targets."""
    if not isinstance(value, Mapping):
        raise ArgumentError(f"it must be a mapping from names to targets, got {value!r:.60}; write  cheap: {{quality: 0.95}}  below it.")
    for name, target in value.items():
        text(name)
        if not name.isascii():
            raise ArgumentError(f"{name!r:.60}: a name must be ASCII, for it comes in a header; write it in plain letters.")
        if target is None:
            continue
        try:
            target_of_setting(target)
        except ArgumentError as error:
            raise ArgumentError(f"{name!r:.60}: {error}") from None


def _some_targets(value: Any) -> None:
    """Names and targets, none of them empty."""
    _targets(value)
    for name, target in value.items():
        if target is None:
            raise ArgumentError(f"{name!r:.60}: a preset must have a target, got none; write  {name}: {{quality: 0.95}}.")


def _made(kind: type[Any], values: Mapping[str, Any], folder: Path) -> Any:
    hints = get_type_hints(kind)
    given: dict[str, Any] = {}
    for name, value in values.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            given[name] = _made(hint, value, folder)  # type: ignore[arg-type]
        elif "Path" in str(hint):
            given[name] = folder / value
        else:
            given[name] = value
    return kind(**given)


# Targets by name: what a client, a preset or a route may ask of the operating frontier.


TARGETS: Mapping[str, TargetKind] = {"price_weight": "price weight", "quality": "quality", "budget": "budget"}
"""Keys of a setting and of a request, each with the kind of target it means."""


def target_named(name: str, value: Any) -> Target:
    """The target that a key and its value ask for.

    Args:
        name: ``"price_weight"``, ``"quality"`` or ``"budget"``.
        value: A number, or its text.

    Raises:
        ArgumentError: The value makes no sense; whether the target can be reached is for a router to say.

    Example:
        >>> target_named("quality", "0.95")
        Target(kind='quality', value=0.95)
        >>> target_named("quality", 95)
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: quality must be a share of the best single expert's score, got 95; did you mean 0.95?
    """
    try:
        number = math.nan if isinstance(value, bool) or not _is_plain(value) else float(value) + 0.0  # without the sign of zero
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentError(f"{name} must be a finite number that is not negative, got {value!r:.60}; leave it out for the usual one.")
    if name == "quality" and number > HIGHEST_QUALITY:
        raise ArgumentError(f"quality must be a share of the best single expert's score, got {number:g}; {quality_hint(number)}")
    return Target(TARGETS[name], number)


def _is_plain(value: Any) -> bool:
    """Whether a text is a number as JSON writes it: Python's ``float`` would take underscores and digits of other scripts, too."""
    return not isinstance(value, str) or (value.isascii() and "_" not in value)


def target_of_setting(value: Any) -> Target:
    """The target of a preset or a route: a price weight, or a mapping of one name to its value.

    Example:
        >>> target_of_setting(7), target_of_setting({"budget": 1.5})
        (Target(kind='price weight', value=7.0), Target(kind='budget', value=1.5))
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return target_named("price_weight", value)
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in TARGETS:
        raise ArgumentError(
            f"it must be a price weight, or one of {{quality: 0.95}}, {{budget: 1.5}} and {{price_weight: 7}}, got {value!r:.60}."
        )
    ((name, number),) = value.items()
    if isinstance(number, str):
        raise ArgumentError(f"{name} must be a number, got the text {number!r:.60}; leave out the quotation marks.")
    return target_named(name, number)


def words_of(target: Target | None) -> str:
    """A target as the log has it; empty for the router's own operating point.

    Example:
        >>> words_of(Target("quality", 0.95)), words_of(None)
        ('quality 0.95', '')
    """
    return "" if target is None else f"{target.kind} {target.value:.12g}"
