"""Reasons why experts fail, and the error that the client gets."""

from __future__ import annotations

from collections.abc import Sequence

from mildroute.gateway.http.errors import APIError
from mildroute.gateway.upstream.attempts import AttemptFailure
from mildroute.gateway.upstream.errors import (
    UnsupportedRequest,
)

__all__ = ["FAILURE_REASONS", "error_from_failures"]

# Reasons for failures, as worded in error messages.
FAILURE_REASONS = {
    "overloaded": "had reached its concurrency limit",
    "connect": "could not be reached",
    "circuit_open": "is cooling down after repeated failures",
    "connection_lost": "broke the connection",
    "context_length": "cannot take a text this long",
    "error_body": "sent an error as its answer",
    "error_event": "reported an error",
    "incomplete_stream": "closed the stream",
    "invalid_response": "sent an invalid response",
    "misconfigured": "refused the gateway's own key, address or model",
    "response_too_large": "sent a response that is too large",
    "rate_limited": "is rate limited",
    "redirect": "redirected the gateway",
    "timeout": "took too long",
    "unsupported": "cannot serve this request",
    "5xx": "had an error",
}
_UNSUPPORTED = UnsupportedRequest.reason
_STATUS_OF_REASON = {"timeout": 504, "circuit_open": 503, "overloaded": 503, _UNSUPPORTED: 400}


def error_from_failures(failures: Sequence[AttemptFailure]) -> APIError:
    """Return the error for a request that no expert served, with the reason of each failure.

    Args:
        failures: Failures in order; empty if there was no time to call an expert.
    """
    if not failures:
        return APIError(
            504,
            "no expert answered: the request ran out of time before one could be called; send"
            " it again.",
        )
    # The last failure of each expert, apart from circuits that opened because of a failure.
    last: dict[str, AttemptFailure] = {}
    for failure in failures:
        if failure.reason != "circuit_open" or failure.expert not in last:
            last[failure.expert] = failure
    causes = "; ".join(
        f"{failure.expert} {FAILURE_REASONS.get(failure.reason, 'failed')}"
        + (f" ({failure.detail.rstrip('.')})" if failure.detail else "")
        for failure in last.values()
    )
    waits = [failure.retry_after for failure in failures if failure.retry_after is not None]
    # Another request helps only if no other expert could have served this one.
    called = [failure for failure in last.values() if failure.reason != _UNSUPPORTED]
    return APIError(
        _status_of((called or [*last.values()])[-1]),
        f"no expert answered: {causes}.",
        code=None if called else _UNSUPPORTED,
        retry_after=min(waits, default=None),
    )


def _status_of(failure: AttemptFailure) -> int:
    status = failure.status
    if failure.reason == "misconfigured" or status is None or status < 400:
        return _STATUS_OF_REASON.get(failure.reason, 502)
    return status if status in (408, 429) or 500 <= status < 600 else 502
