"""What one attempt at a call came to: an answer, a final error, or a reason to retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mildroute.experts.base import Completion, HTTPResult, TransportFailure, parse_completion
from mildroute.experts.retry import retry_after
from mildroute.experts.secrets import LONGEST

Again = Literal["never", "after failure", "after refusal"]
Scrub = Callable[[str], str]

_REPEATED = {408, 409, 429}
_REFUSED_FOR_LOAD = {503, 529}
_LOST_BEHIND_A_GATEWAY = {408, 502, 504, 520, 521, 522, 523, 524}
MAX_SHOWN = 200
_LONGEST_SPELLING = 3 * LONGEST
_ADVICE = {
    401: "check the key that api_key_env names",
    403: "check the key that api_key_env names",
    404: "check base_url and model",
    413: "shorten the prompt",
}


@dataclass(frozen=True)
class AttemptOutcome:
    """What is done after an attempt.

    Args:
        completion: The answer, or an answer without text that was paid all the same.
        doubtful: Whether it may have been charged although there is no completion.
    """

    completion: Completion | None = None
    error: str = ""
    again: Again = "never"
    doubtful: bool = False
    wait: float | None = None


def classify_attempt(
    result: HTTPResult | TransportFailure,
    scrub: Scrub,
    *,
    now: float,
    parse: Callable[[Any], Completion] = parse_completion,
) -> AttemptOutcome:
    """Judge one attempt.

    Args:
        result: What came over the wire.
        scrub: Removes secrets from a text of the server.
        now: Seconds since 1970, for dates in Retry-After.
        parse: Reads the answer in a parsed body.

    Returns:
        Tried again are lost connections, timeouts, bodies that are no JSON, 408, 409, 429 and 5xx;
        nothing else is.
    """
    if isinstance(result, TransportFailure):
        return AttemptOutcome(
            error=result.reason,
            again="never" if result.final else "after failure",
            doubtful=result.sent,
        )
    if 200 <= result.status < 300:
        return _of_body(result, scrub, parse)
    error = _complaint(result, scrub)
    is_repeated = result.status in _REPEATED or result.status >= 500
    if not is_repeated or (result.status == 429 and b"insufficient_quota" in result.body):
        return AttemptOutcome(error=error)
    wait = retry_after(result.retry_after, now)
    refused = result.status == 429 or (result.status in _REFUSED_FOR_LOAD and wait is not None)
    doubtful = result.status in _LOST_BEHIND_A_GATEWAY
    return AttemptOutcome(
        error=error,
        again="after refusal" if refused else "after failure",
        doubtful=doubtful,
        wait=wait,
    )


def _of_body(
    received: HTTPResult, scrub: Scrub, parse: Callable[[Any], Completion]
) -> AttemptOutcome:
    if received.cut:
        return AttemptOutcome(
            error=f"the answer is longer than the {len(received.body):,} bytes that are read",
            doubtful=True,
        )
    try:
        document = json.loads(received.body)
    except (ValueError, RecursionError):
        return AttemptOutcome(
            error=f"the body is no JSON: {_excerpt(received, scrub)}",
            again="after failure",
            doubtful=True,
        )
    completion = parse(document)
    if completion.text is None and completion.tokens_in is None and completion.tokens_out is None:
        return AttemptOutcome(
            error=f"{completion.problem}: {_excerpt(received, scrub)}", doubtful=True
        )
    return AttemptOutcome(completion)


def _complaint(received: HTTPResult, scrub: Scrub) -> str:
    said = f"HTTP {received.status}: {_excerpt(received, scrub)}"
    if 300 <= received.status < 400:
        where = _shown(scrub(received.location or "nowhere"))
        return (
            f"{said}; redirects are not followed, since a key must not go elsewhere; set base_url"
            f" for {where} if you trust it"
        )
    return f"{said}; {_ADVICE[received.status]}" if received.status in _ADVICE else said


def _excerpt(received: HTTPResult, scrub: Scrub) -> str:
    """The server's own message where there is one.

    Scrubbed before it is shortened, so that no part of a key is left.
    """
    text = _message_in(received.body) or received.body.decode("utf-8", "replace")
    # The end of a body that was cut may be the beginning of a key.
    return _shown(scrub(text)[: -_LONGEST_SPELLING if received.cut else None]) or "(empty)"


def _message_in(body: bytes) -> str | None:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for name in ("error", "message", "detail"):
        if isinstance(document, dict) and name in document:
            document = document[name]
    return document if isinstance(document, str) else None


def _shown(text: str) -> str:
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN] + "..."
