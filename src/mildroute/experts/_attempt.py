"""Outcomes of one attempt at a call: an answer, a final error, or a reason to retry."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from mildroute.experts.base import HTTPResult, TransportFailure
from mildroute.experts.completion import Completion, parse_completion
from mildroute.experts.retry import retry_after
from mildroute.experts.secrets import LONGEST

RetryRule = Literal["never", "after failure", "after refusal"]
# A function that removes secrets from a text of the server.
Scrub = Callable[[str], str]

# Maximum characters of a server's message to show in an error.
MAX_SHOWN = 200

_RETRIED_STATUSES = {408, 409, 429}
_OVERLOADED = {503, 529}
_LOST_BEHIND_A_GATEWAY = {408, 502, 504, 520, 521, 522, 523, 524}
_LONGEST_SPELLING = 3 * LONGEST
_ADVICE = {
    401: "check the key that api_key_env names",
    403: "check the key that api_key_env names",
    404: "check base_url and model",
    413: "shorten the prompt",
}


@dataclass(frozen=True)
class AttemptOutcome:
    """The outcome of an attempt, which determines whether to make another one.

    Args:
        completion: The answer, which may have no text although it was charged.
        error: Reason why there is no completion.
        retry: Whether to make another attempt: never, after a failure, or after a refusal.
        doubtful: Whether the attempt may have been charged although there is no completion.
        wait: Seconds that the server requests to wait, or ``None``.
    """

    completion: Completion | None = None
    error: str = ""
    retry: RetryRule = "never"
    doubtful: bool = False
    wait: float | None = None


def classify_attempt(
    result: HTTPResult | TransportFailure,
    scrub: Scrub,
    *,
    now: float,
    parse: Callable[[Any], Completion] = parse_completion,
) -> AttemptOutcome:
    """Return the outcome of one attempt.

    Only lost connections, timeouts, bodies that are not JSON, 408, 409, 429 and 5xx are retried.

    Args:
        result: The response, or the reason why it did not arrive.
        scrub: Function that removes secrets from a text of the server.
        now: Seconds since 1970, for dates in Retry-After.
        parse: Function that returns the answer in a parsed body.
    """
    if isinstance(result, TransportFailure):
        return AttemptOutcome(
            error=result.reason,
            retry="never" if result.final else "after failure",
            doubtful=result.sent,
        )
    if 200 <= result.status < 300:
        return _classify_body(result, scrub, parse)
    error = _describe_error(result, scrub)
    is_retried = result.status in _RETRIED_STATUSES or result.status >= 500
    if not is_retried or (result.status == 429 and b"insufficient_quota" in result.body):
        return AttemptOutcome(error=error)
    wait = retry_after(result.retry_after, now)
    is_refused = result.status == 429 or (result.status in _OVERLOADED and wait is not None)
    return AttemptOutcome(
        error=error,
        retry="after refusal" if is_refused else "after failure",
        doubtful=result.status in _LOST_BEHIND_A_GATEWAY,
        wait=wait,
    )


def _classify_body(
    result: HTTPResult, scrub: Scrub, parse: Callable[[Any], Completion]
) -> AttemptOutcome:
    if result.cut:
        return AttemptOutcome(
            error=f"the answer is longer than the limit of {len(result.body):,} bytes",
            doubtful=True,
        )
    try:
        document = json.loads(result.body)
    except (ValueError, RecursionError):
        return AttemptOutcome(
            error=f"the body is not JSON: {_excerpt(result, scrub)}",
            retry="after failure",
            doubtful=True,
        )
    completion = parse(document)
    if completion.text is None and completion.tokens_in is None and completion.tokens_out is None:
        return AttemptOutcome(
            error=f"{completion.problem}: {_excerpt(result, scrub)}", doubtful=True
        )
    return AttemptOutcome(completion)


def _describe_error(result: HTTPResult, scrub: Scrub) -> str:
    description = f"HTTP {result.status}: {_excerpt(result, scrub)}"
    if 300 <= result.status < 400:
        location = _shorten(scrub(result.location or "nowhere"))
        return (
            f"{description}; redirects are not followed, because they would send the key elsewhere;"
            f" change base_url to {location} if you trust it"
        )
    if result.status in _ADVICE:
        return f"{description}; {_ADVICE[result.status]}"
    return description


def _excerpt(result: HTTPResult, scrub: Scrub) -> str:
    """Return the server's message, or the beginning of its body.

    Secrets are removed before the text is shortened, so that no part of a key remains.
    """
    text = _parse_message(result.body) or result.body.decode("utf-8", "replace")
    # The end of a body that was cut may be the beginning of a key.
    return _shorten(scrub(text)[: -_LONGEST_SPELLING if result.cut else None]) or "(empty)"


def _parse_message(body: bytes) -> str | None:
    try:
        document: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    for name in ("error", "message", "detail"):
        if isinstance(document, dict) and name in document:
            document = document[name]
    return document if isinstance(document, str) else None


def _shorten(text: str) -> str:
    """Return the beginning of a text on one line, without control characters."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    return line if len(line) <= MAX_SHOWN else line[:MAX_SHOWN] + "..."
