"""Ids of responses that name their expert, so that any replica can continue from them.

As in LiteLLM, the ids are base64 and not secret: all keys share the gateway's account with the
provider.
"""

from __future__ import annotations

import base64
import re

__all__ = ["decode_response_id", "encode_response_id"]

_PREFIX = "resp_mr"
_MAX_ENCODED = 1024
_is_plain_id = re.compile(r"[A-Za-z0-9_.:/+=-]{1,200}").fullmatch


def encode_response_id(response_id: str, expert: str) -> str:
    """Return the id that clients get for a response of an expert.

    An invalid id, such as a text with spaces, is returned unchanged.

    Example:
        >>> decode_response_id(encode_response_id("resp_1", "small"))
        ('resp_1', 'small')
    """
    if _is_plain_id(response_id) is None:
        return response_id
    named = f"{expert}\0{response_id}".encode()
    return _PREFIX + base64.urlsafe_b64encode(named).decode().rstrip("=")


def decode_response_id(encoded: str) -> tuple[str, str] | None:
    """Return the expert's own id and the expert, or ``None`` if the id is not one of ours."""
    if len(encoded) > _MAX_ENCODED or not encoded.startswith(_PREFIX):
        return None
    rest = encoded[len(_PREFIX) :]
    try:
        named = base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode()
    except ValueError:
        return None
    expert, _, response_id = named.partition("\0")
    # Each id has exactly one valid encoding.
    is_own = bool(expert) and _is_plain_id(response_id) is not None
    is_own = is_own and encode_response_id(response_id, expert) == encoded
    return (response_id, expert) if is_own else None
