"""How a gateway behaves: every figure in one place, with defaults that are safe to start with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BreakerRules", "EncoderRules", "FailoverRules", "Limits", "LogRules", "PolicyRules", "Settings"]


@dataclass(frozen=True)
class PolicyRules:
    """Who is asked.

    Args:
        default: Expert for inputs that the router cannot judge; the best single expert of the training data where none is named.
        keep_conversations: Whether a conversation stays with its expert.
        leave_gain: A conversation changes its expert only if another one's probability is higher by more than this.
        memory: Conversations that are remembered.
        forget_after: Seconds after which a silent conversation is forgotten.
        explore: Share of requests whose expert is drawn by lot; first turns of conversations alone.
        presets: Targets by name, for the header ``x-mildroute-preset``: a price weight, or one of ``{quality: 0.95}``, ``{budget: 1.5}``
            and ``{price_weight: 7}``.
        routes: Further names under ``model`` that mean "choose", each with the target to choose at, likewise, or none.

    Example:
        >>> PolicyRules().explore
        0.0
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
class BreakerRules:
    """When an expert is left alone.

    Args:
        failures: Failures in a row that open the circuit.
        share: Share of failures among the calls of a window that opens it, too ...
        least: ... if there were at least so many calls.
        window: Seconds of the window.
        rest: Seconds until one probe is let through; doubled after each failed probe ...
        longest_rest: ... up to this.

    Example:
        >>> BreakerRules().failures
        5
    """

    failures: int = 5
    share: float = 0.5
    least: int = 20
    window: float = 30.0
    rest: float = 1.0
    longest_rest: float = 60.0


@dataclass(frozen=True)
class FailoverRules:
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
        >>> FailoverRules().hedge_after is None
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
class EncoderRules:
    """How inputs become vectors on the request's way.

    Args:
        budget: Seconds in which a vector must be there; else the safe default answers.
        batch: Inputs that are encoded together at most.
        queue: Inputs that may wait; more are answered by the safe default at once.
        threads: Threads that encode.
        remembered: Vectors that are kept by content; 0 keeps none.
        characters: Characters of an input that are read: its beginning and its end.

    Example:
        >>> EncoderRules().threads
        1
    """

    budget: float = 0.25
    batch: int = 16
    queue: int = 256
    threads: int = 1
    remembered: int = 10_000
    characters: int = 8_000


@dataclass(frozen=True)
class Limits:
    """What a client may send.

    Args:
        head: Bytes of a request's line and headers.
        head_seconds: Seconds in which they must have arrived, also after the connection was opened.
        body: Bytes of a request.
        body_seconds: Seconds in which it must have arrived.
        connections: Requests at the same time; more are refused with 503 and Retry-After.
        answer: Bytes of an answer that does not come in pieces.
        batch: Inputs of one ``POST /v1/route``.

    Example:
        >>> Limits().body
        20971520
    """

    head: int = 64 << 10
    head_seconds: float = 10.0
    body: int = 20 << 20
    body_seconds: float = 30.0
    connections: int = 1024
    answer: int = 64 << 20
    batch: int = 1000


@dataclass(frozen=True)
class LogRules:
    """What is written down of decisions.

    Args:
        folder: Where, or none for no log.
        keep_text: Whether the text that was routed is written down, too.
        rows: Lines of a file, after which a new one begins.

    Example:
        >>> LogRules().keep_text
        False
    """

    folder: Path | None = None
    keep_text: bool = False
    rows: int = 100_000


@dataclass(frozen=True)
class Settings:
    """A gateway.

    Args:
        policy: Who is asked.
        breaker: When an expert is left alone.
        failover: How long and how often a request is tried.
        encoder: How inputs become vectors.
        limits: What a client may send.
        log: What is written down.
        keys: File of hashed client keys, or none: then everyone who can reach the gateway may use it. It is read anew with the router.
        admin_key_env: Environment variable of the key for ``/admin``, or none: then there is no ``/admin``.
        metrics_key_env: Environment variable of the key for ``/metrics``, or none: then everyone who can reach the gateway may read them.
            It may be the same variable.
        shadow: Folder of a second router that decides silently, or none.
        baseline: Expert whose bill the savings are counted against; the dearest where none is named.
        watch: Seconds between looks at the artifact's folder, or none.

    Example:
        >>> Settings().policy.keep_conversations
        True
    """

    policy: PolicyRules = field(default_factory=PolicyRules)
    breaker: BreakerRules = field(default_factory=BreakerRules)
    failover: FailoverRules = field(default_factory=FailoverRules)
    encoder: EncoderRules = field(default_factory=EncoderRules)
    limits: Limits = field(default_factory=Limits)
    log: LogRules = field(default_factory=LogRules)
    keys: Path | None = None
    admin_key_env: str | None = None
    metrics_key_env: str | None = None
    shadow: Path | None = None
    baseline: str | None = None
    watch: float | None = None
