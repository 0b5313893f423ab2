"""Classification of responses: forwarded to the client, or a failure of the expert."""

from __future__ import annotations

import json
import re

from mildroute.gateway.http.headers import Header

__all__ = ["RATE_LIMITED", "classify_response", "is_too_long"]

RATE_LIMITED = "rate_limited"
_REASON_OF_STATUS = {
    **dict.fromkeys((401, 402, 403, 404, 405, 407, 421), "misconfigured"),
    408: "timeout",
    429: RATE_LIMITED,
}
_TOO_LONG = (400, 413)
_JSON_LIKE = (b"", b"text/plain", b"application/octet-stream", b"text/event-stream")
_MEMBERS_OF_ANSWERS = ("choices", "data", "output", "content")
# Some APIs send "error": null with every answer.
_may_be_error = re.compile(rb'"error"\s*:\s*[^\sn]').search
_names_length = re.compile(
    rb"context_length_exceeded|context (?:length|window|size)|(?:prompt|input) is too long"
    rb"|exceed context limit"
    rb"|too many (?:input )?tokens|reduce the length",
    re.IGNORECASE,
).search


def classify_response(status: int, headers: list[Header], body: bytes, *, is_complete: bool) -> str:
    """Return the reason for not forwarding a response; empty if it is forwarded.

    A 4xx is the client's concern and is forwarded, unless it means that the gateway is
    misconfigured: it uses a bad key, has no credit, or names an address or a model that does not
    exist. Redirects are not followed. A 2xx must be JSON or a stream of events, judged by its
    content type and its first and last bytes, and must not be an error in place of an answer.
    """
    if 200 <= status < 300:
        return _classify_success(headers, body, is_complete=is_complete)
    if 400 <= status < 500:
        return _REASON_OF_STATUS.get(status, "")
    if 500 <= status < 600:
        return "5xx"
    return "redirect" if 300 <= status < 400 else "invalid_response"


def _classify_success(headers: list[Header], body: bytes, *, is_complete: bool) -> str:
    content_type = b""
    is_encoded = False
    for name, value in headers:
        if name == b"content-encoding":
            is_encoded = value != b"identity"
        elif name == b"content-type":
            content_type = value.partition(b";")[0].strip().lower()
    is_json = b"json" in content_type
    if not is_json and content_type not in _JSON_LIKE:
        return "invalid_response"
    if not is_complete or (is_encoded and body):
        return ""
    # A cheap check of both ends.
    stripped = body.strip()
    is_object = stripped[:1] + stripped[-1:] in (b"{}", b"[]")
    if not stripped or (is_json and not is_object):
        return "invalid_response"
    return "error_body" if is_object and _may_be_error(body) and _is_error(body) else ""


def _is_error(body: bytes) -> bool:
    """Return whether a document is an error in place of an answer, such as OpenRouter sends."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return (
        type(document) is dict
        and bool(document.get("error"))
        and not any(document.get(name) for name in _MEMBERS_OF_ANSWERS)
    )


def is_too_long(status: int, body: bytes) -> bool:
    """Return whether a response says that the request is too long for the expert."""
    return status in _TOO_LONG and _names_length(body) is not None
