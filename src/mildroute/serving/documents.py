"""JSON documents of the gateway's own, in and out."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from mildroute.serving.caller import Caller
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.settings import Limits

__all__ = ["read_document", "read_object", "send_document"]

_KIND = ((b"content-type", b"application/json"),)


async def read_object(caller: Caller, limits: Limits) -> dict[str, Any]:
    """The JSON object that a client sends; a ComplaintError if it is none.

    Example:
        >>> import asyncio
        >>> async def receive():
        ...     return {"type": "http.request", "body": b'{"a": 1}'}
        >>> asyncio.run(read_object(Caller({"headers": []}, receive, None), Limits()))
        {'a': 1}
    """
    return read_document(await caller.body(limits.body, limits.body_seconds))


def read_document(body: bytes) -> dict[str, Any]:
    """The JSON object in a body; a ComplaintError if it is none.

    Example:
        >>> read_document(b"[1]")
        Traceback (most recent call last):
        mildroute.serving.complaints.ComplaintError: the body must be a JSON object, got something else; see /openapi.json.
    """
    try:
        document = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ComplaintError(400, "the body must be JSON in UTF-8; see /openapi.json.") from None
    if not isinstance(document, dict):
        raise ComplaintError(400, "the body must be a JSON object, got something else; see /openapi.json.")
    return document


async def send_document(caller: Caller, document: Any, status: int = 200) -> None:
    """Answer with JSON.

    Example:
        >>> import asyncio
        >>> async def send(message):
        ...     print(message.get("body"))
        >>> asyncio.run(send_document(Caller({}, None, send), {"a": 1}))
        None
        b'{"a": 1}'
    """
    await caller.answer(status, _KIND, json.dumps(document).encode())


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
