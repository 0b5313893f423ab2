"""What an expert's answer means for the request: pass it on, or ask the next expert."""

from __future__ import annotations

from mildroute.serving.passing import Header

__all__ = ["REFUSED", "flaw_of"]

REFUSED = "rate"
"""Said of an expert that is well but over its rate."""

_OF_STATUS = {
    **dict.fromkeys((401, 402, 403, 404, 405, 407, 421), "misconfigured"),
    408: "timeout",
    429: REFUSED,
}


def flaw_of(status: int, headers: list[Header], body: bytes, *, is_whole: bool) -> str:
    """Why an answer is not passed on; empty if it is.

    A 4xx is the client's own affair and is passed on, but for those that say that the gateway calls the expert wrongly: with a bad key,
    without money, or at an address or for a model that is not there. Redirects are not followed.

    Args:
        status: Of the answer.
        headers: Of the answer.
        body: What is there of it.
        is_whole: Whether that is all.

    Returns:
        One of few words.

    Example:
        >>> flaw_of(401, [], b"", is_whole=True), flaw_of(422, [], b"{}", is_whole=True), flaw_of(200, [], b"", is_whole=True)
        ('misconfigured', '', 'malformed')
    """
    if 200 <= status < 300:
        return "malformed" if is_whole and _is_cut(headers, body) else ""
    if 400 <= status < 500:
        return _OF_STATUS.get(status, "")
    return "5xx" if 500 <= status < 600 else "redirect" if 300 <= status < 400 else "malformed"


def _is_cut(headers: list[Header], body: bytes) -> bool:
    """Whether an answer has no body, or one that is called JSON and cannot be; a cheap look at both ends."""
    kind = b""
    for name, value in headers:
        if name == b"content-encoding" and value != b"identity":
            return not body
        if name == b"content-type":
            kind = value
    if not kind.startswith(b"application/json"):
        return not body
    ends = body.strip()
    return ends[:1] + ends[-1:] not in (b"{}", b"[]")
