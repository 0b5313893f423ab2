"""Headers that pass between clients and experts."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["FORWARDED_TO_EXPERT", "Header", "forward_request_headers", "forward_response_headers"]

# A lowercase name and a value.
Header = tuple[bytes, bytes]
FORWARDED_TO_EXPERT = frozenset(
    (
        b"content-type",
        b"accept",
        b"openai-beta",
        b"anthropic-beta",
        b"anthropic-version",
        b"x-request-id",
        b"traceparent",
        b"tracestate",
    )
)
_FORWARDED_TO_CLIENT = frozenset(
    (
        b"content-type",
        b"content-encoding",
        b"cache-control",
        b"retry-after",
        b"x-request-id",
        b"request-id",
        b"openai-processing-ms",
    )
)
_MAX_VALUE = 8192
_RATE_LIMIT_PREFIXES = (b"x-ratelimit-", b"ratelimit-", b"anthropic-ratelimit-")
_is_unsafe = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").search


def forward_request_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of a client that are forwarded to an expert.

    They never include the client's key, cookies or address, or a value longer than 8 KiB.
    """
    return [
        (name, value)
        for name, value in headers
        if name in FORWARDED_TO_EXPERT and len(value) <= _MAX_VALUE and not _is_unsafe(value)
    ]


def forward_response_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers of an expert that are forwarded to a client.

    They describe the content, rate limits and ids.
    """
    return [
        (name, value)
        for name, value in headers
        if (name in _FORWARDED_TO_CLIENT or name.startswith(_RATE_LIMIT_PREFIXES))
        and not _is_unsafe(value)
    ]
