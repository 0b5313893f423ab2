"""What one attempt came to: an answer, an error for good, or a reason to try again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mildroute.experts.backoff import retry_after
from mildroute.experts.reply import Completion, completion_of
from mildroute.experts.secret import LONGEST

__all__ = ["Again", "Lost", "Outcome", "Received", "outcome_of"]

Again = Literal["never", "after failure", "after refusal"]
Scrub = Callable[[str], str]

_REPEATED = {408, 409}
_REFUSED_FOR_LOAD = {503, 529}
_LOST_BEHIND_A_GATEWAY = {408, 502, 504, 520, 521, 522, 523, 524}
_SHOWN = 200
_LONGEST_SPELLING = 3 * LONGEST
_ADVICE = {
    401: "check the key that api_key_env names",
    403: "check the key that api_key_env names",
    404: "check base_url and model",
    413: "shorten the prompt",
}


@dataclass(frozen=True)
class Received:
    """What came back over the wire.

    Args:
        status: HTTP status.
        body: At most the allowed number of bytes.
        cut: Whether there were more.
        retry_after: The header, if there was one.
        location: Where the server would rather be asked.

    Example:
        >>> Received(200, b"{}").cut
        False
    """

    status: int
    body: bytes
    cut: bool = False
    retry_after: str | None = None
    location: str | None = None


@dataclass(frozen=True)
class Lost:
    """Nothing, or only a part, came back over the wire.

    Args:
        reason: Why, in words without secrets.
        sent: Whether the server may have worked on the request, and may charge for it.
        final: Whether another attempt makes no sense.

    Example:
        >>> Lost("no connection", sent=False).final
        False
    """

    reason: str
    sent: bool
    final: bool = False


@dataclass(frozen=True)
class Outcome:
    """What is done after an attempt.

    Args:
        completion: The answer, or an answer without text that was paid all the same.
        error: Why there is no completion.
        again: Whether another attempt is made.
        doubtful: Whether it may have been charged although there is no completion.
        wait: Seconds that the server asks to wait.

    Example:
        >>> outcome_of(Received(503, b"busy"), str, now=0.0).again
        'after failure'
    """

    completion: Completion | None = None
    error: str = ""
    again: Again = "never"
    doubtful: bool = False
    wait: float | None = None


def outcome_of(result: Received | Lost, scrub: Scrub, *, now: float) -> Outcome:
    """Judge one attempt.

    Args:
        result: What came over the wire.
        scrub: Removes secrets from a text of the server.
        now: Seconds since 1970, for dates in Retry-After.

    Returns:
        Tried again are lost connections, timeouts, bodies that are no JSON, 408, 409, 429 and 5xx; nothing else is.

    Example:
        >>> outcome_of(Received(401, b'{"error": {"message": "no such key"}}'), str, now=0.0).error
        'HTTP 401: no such key; check the key that api_key_env names'
    """
    if isinstance(result, Lost):
        return Outcome(error=result.reason, again="never" if result.final else "after failure", doubtful=result.sent)
    if 200 <= result.status < 300:
        return _of_body(result, scrub)
    error = _complaint(result, scrub)
    if not _is_repeated(result.status) or (result.status == 429 and b"insufficient_quota" in result.body):
        return Outcome(error=error)
    wait = retry_after(result.retry_after, now)
    refused = result.status == 429 or (result.status in _REFUSED_FOR_LOAD and wait is not None)
    doubtful = result.status in _LOST_BEHIND_A_GATEWAY
    return Outcome(error=error, again="after refusal" if refused else "after failure", doubtful=doubtful, wait=wait)


def _is_repeated(status: int) -> bool:
    return status in _REPEATED or status == 429 or status >= 500


def _of_body(received: Received, scrub: Scrub) -> Outcome:
    if received.cut:
        return Outcome(error=f"the answer is longer than the {len(received.body):,} bytes that are read", doubtful=True)
    try:
        document = json.loads(received.body)
    except (ValueError, RecursionError):
        return Outcome(error=f"the body is no JSON: {_excerpt(received, scrub)}", again="after failure", doubtful=True)
    completion = completion_of(document)
    if completion.text is None and completion.tokens_in is None and completion.tokens_out is None:
        return Outcome(error=f"{completion.problem}: {_excerpt(received, scrub)}", doubtful=True)
    return Outcome(completion)


def _complaint(received: Received, scrub: Scrub) -> str:
    said = f"HTTP {received.status}: {_excerpt(received, scrub)}"
    if 300 <= received.status < 400:
        where = _shown(scrub(received.location or "nowhere"))
        return f"{said}; redirects are not followed, since a key must not go elsewhere; set base_url for {where} if you trust it"
    return f"{said}; {_ADVICE[received.status]}" if received.status in _ADVICE else said


def _excerpt(received: Received, scrub: Scrub) -> str:
    """The server's own message where there is one; scrubbed before it is shortened, so that no part of a key is left."""
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
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
