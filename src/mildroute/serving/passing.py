"""Which headers go through the gateway, in either direction; all others stay behind."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Header", "passed_back", "passed_on"]

Header = tuple[bytes, bytes]
"""Name, in small letters, and value."""

_ON = frozenset((b"content-type", b"accept", b"openai-beta", b"x-request-id", b"traceparent", b"tracestate"))
_BACK = frozenset(
    (b"content-type", b"content-encoding", b"cache-control", b"retry-after", b"x-request-id", b"request-id", b"openai-processing-ms")
)
_LONGEST = 8192
_RATES = (b"x-ratelimit-", b"ratelimit-")
_is_unsafe = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search


def passed_on(headers: Iterable[Header]) -> bytes:
    r"""What an expert is told of a client's headers; never its key, its cookies, its address or what is longer than 8 KiB.

    Args:
        headers: Of the request, names in small letters.

    Returns:
        Lines for the head of another request.

    Example:
        >>> passed_on([(b"authorization", b"Bearer mr-1"), (b"accept", b"text/event-stream")])
        b'accept: text/event-stream\r\ncontent-type: application/json\r\n'
    """
    kept = [header for header in headers if header[0] in _ON and len(header[1]) <= _LONGEST and not _is_unsafe(header[1])]
    lines = b"".join([b"%b: %b\r\n" % header for header in kept])
    return lines if any(name == b"content-type" for name, _ in kept) else lines + b"content-type: application/json\r\n"


def passed_back(headers: Iterable[Header]) -> list[Header]:
    """What a client is told of an expert's headers: the kind of content, its rates, and by which name to complain.

    Example:
        >>> passed_back([(b"set-cookie", b"a=b"), (b"x-ratelimit-limit-requests", b"60")])
        [(b'x-ratelimit-limit-requests', b'60')]
    """
    return [header for header in headers if (header[0] in _BACK or header[0].startswith(_RATES)) and not _is_unsafe(header[1])]
