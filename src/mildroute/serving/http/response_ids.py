"""Ids of responses that name their expert, so that any replica can continue from them."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from itertools import pairwise

from mildroute.experts.secrets import Secret
from mildroute.serving.http.body import LENIENT, find_member

__all__ = ["ResponseIdCodec", "ResponseIdFilter"]


_PREFIX = b"resp_mr"
_MAC_BYTES = 16
_MAX_ENCODED = 1024
# Without escapes, so that an id is the same in JSON and outside of it.
_is_plain_id = re.compile(r"[A-Za-z0-9_.:/+=-]{1,200}").fullmatch
_FIXED_KEY = hashlib.blake2b(b"mildroute response ids", digest_size=64).digest()


class ResponseIdCodec:
    """Encodes the expert into the ids of its responses, encrypted and authenticated.

    An id decodes for the client that it was made for, and for no other. The construction is a
    synthetic initialization vector (RFC 5297) with keyed BLAKE2b as the pseudorandom function and
    SHAKE-256 as the key stream: the same response has the same id in every replica, and a client
    that gets hold of another one's id cannot read from it what the expert would accept.

    Args:
        secret: What the keys are derived from, the same in every replica; none for fixed keys,
            which hide and prove nothing.
    """

    __slots__ = ("_cipher_key", "_mac_key")

    def __init__(self, secret: Secret | None = None) -> None:
        keys = _FIXED_KEY
        if secret is not None:
            # Each id lets its client test guesses of the secret; this makes a guess take 50 ms.
            keys = hashlib.scrypt(
                secret.bearer(), salt=b"mildroute response ids", n=1 << 14, r=8, p=1
            )
        self._mac_key = keys[:32]
        self._cipher_key = keys[32:]

    def encode(self, response_id: str, expert: str, client: str) -> str:
        """The id for a client of a response that an expert gave."""
        named = f"{expert}\0{response_id}".encode()
        owner = client.encode()
        tag = hashlib.blake2b(
            b"%d:%b%b" % (len(owner), owner, named), key=self._mac_key, digest_size=_MAC_BYTES
        ).digest()
        encoded = base64.urlsafe_b64encode(tag + self._apply_key_stream(tag, named))
        return (_PREFIX + encoded.rstrip(b"=")).decode()

    def decode(self, encoded: str, client: str) -> tuple[str, str] | None:
        """The expert's own id and the expert, or none if the client was given no such id."""
        if len(encoded) > _MAX_ENCODED or not encoded.startswith(_PREFIX.decode()):
            return None
        rest = encoded[len(_PREFIX) :]
        try:
            data = base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4))
            named = self._apply_key_stream(data[:_MAC_BYTES], data[_MAC_BYTES:]).decode()
        except (ValueError, binascii.Error):
            return None
        expert, _, response_id = named.partition("\0")
        # Equal to what it would be is authentic, and has one spelling only.
        wanted = self.encode(response_id, expert, client)
        return (response_id, expert) if hmac.compare_digest(wanted, encoded) else None

    def _apply_key_stream(self, tag: bytes, data: bytes) -> bytes:
        stream = hashlib.shake_256(self._cipher_key + tag).digest(len(data))
        number = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return number.to_bytes(len(data), "big")


_MAX_LINE = 1 << 16
# Bytes of a member with an id, at most; of a long line so many are held.
_MAX_ID_MEMBER = 512
_MAX_NAME = 64
_ends_with_name = re.compile(rb'"(?:id|previous_response_id)"[ \t\r\n]*:[ \t\r\n]*\Z').search


class ResponseIdFilter:
    """Replaces the id of a response in the body of it, or in the events of its stream.

    The id is learned once, from the response or from the first event that has one, and replaced
    wherever it stands under ``id``; text cannot look like that, for its quotation marks are
    escaped. All other bytes stay as they are. A line is held until it is complete; one longer than
    64 KiB is let through in parts.

    Args:
        encode: The new id for that of the expert.
        previous: The id of the response before, as the expert and as the client know it, or none.
    """

    __slots__ = ("_encode", "_held", "_is_learned", "_replacements")

    def __init__(
        self, encode: Callable[[str], str], previous: tuple[str, str] | None = None
    ) -> None:
        self._encode = encode
        self._held = b""
        self._is_learned = False
        self._replacements = [] if previous is None else [previous]

    def feed(self, chunk: bytes, *, is_last: bool) -> bytes:
        """The bytes to send after the next ones have come, cut anywhere."""
        data = self._held + chunk
        end = len(data) if is_last else data.rfind(b"\n") + 1
        if len(data) - end > _MAX_LINE:
            data = self._replace(data)
            end = len(data) - _MAX_ID_MEMBER
            self._held = data[end:]
            return data[:end]
        self._held = data[end:]
        return self._replace(data[:end])

    def _replace(self, data: bytes) -> bytes:
        if not self._is_learned and (found := _find_response_id(data)) is not None:
            self._is_learned = True
            self._replacements.append((found, self._encode(found)))
        for old, new in self._replacements:
            data = _replace_id(data, b'"%b"' % old.encode(), b'"%b"' % new.encode())
        return data


def _replace_id(data: bytes, old: bytes, new: bytes) -> bytes:
    # By its occurrences: a pattern took 10 ms for a megabyte.
    parts = data.split(old)
    pieces = parts[:1]
    for before, after in pairwise(parts):
        is_id = _ends_with_name(before, max(0, len(before) - _MAX_NAME))
        pieces += new if is_id else old, after
    return b"".join(pieces)


def _find_response_id(data: bytes) -> str | None:
    """The id of the response that data holds, or that the first event tells which has one."""
    # Each byte becomes one character, so that half of a letter at the end does no harm.
    if data[:_MAX_NAME].lstrip().startswith(b"{"):
        return _id_of_object(data[:_MAX_LINE].decode("latin-1").lstrip(), 0)
    if b'"response"' in data:
        for line in data.splitlines():
            if line.startswith(b"data:") and b'"response"' in line:
                text = line[5 : 5 + _MAX_LINE].decode("latin-1").lstrip()
                if found := _id_of_object(text, find_member(text, 0, "response")):
                    return found
    return None


def _id_of_object(text: str, at: int | None) -> str | None:
    place = None if at is None else find_member(text, at, "id")
    if place is None or text[place : place + 1] != '"':
        return None
    try:
        value, _ = LENIENT.raw_decode(text, place)
    except ValueError:
        return None
    return value if _is_plain_id(value) else None
