"""Client keys: who may call the gateway, known by the hashes of their keys alone.

A key is made by us: ``mr-`` and 256 random bits. No one can search 2**256 keys, so one round of SHA-256 is a sound way to keep them; a slow
function such as bcrypt is for passwords, which people choose from a small space, and would cost every request its milliseconds.

What the time of an answer can tell: a caller's key is hashed first, and only digests are compared. Digests are looked up by their first
eight bytes and then compared in constant time, with a digest of nobody's where none was found. Even a caller who could measure the look-up
would learn something of the digest of a key that it made up itself, cannot steer that digest, and could not find a key from a digest.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.experts.located import Document, Place, read_document
from mildroute.experts.shape import Shape, check_shape

__all__ = ["ANYONE", "Client", "KeyRing", "hash_of", "new_key"]

_BEARER = re.compile(r"[Bb]earer (mr-[A-Za-z0-9_-]{43})")
_KEY = re.compile(r"mr-[A-Za-z0-9_-]{20,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NOBODY = b"\0" * 32
_INDEXED = 8


@dataclass(frozen=True)
class Client:
    """Who calls.

    Args:
        name: As the decision log and the metrics show it; empty where the gateway asks for no keys.
        requests_per_minute: That are let through, or none for no limit.
        dollars_per_day: That may be spent in a day of UTC, or none for no limit.

    Example:
        >>> Client("team-a", requests_per_minute=600).dollars_per_day is None
        True
    """

    name: str
    requests_per_minute: float | None = None
    dollars_per_day: float | None = None


ANYONE = Client("")
"""The caller of a gateway without keys."""


class KeyRing:
    """All clients of a gateway, by the hashes of their keys; it never holds a key.

    Args:
        clients: Each with the hash of its key, as ``hash_of`` writes it. Without an argument the gateway asks for no keys, and everyone is
            :data:`ANYONE`; with an empty list nobody is let in.

    Example:
        >>> key = new_key()
        >>> ring = KeyRing([(hash_of(key), Client("team-a"))])
        >>> ring.find(f"Bearer {key}").name
        'team-a'
        >>> ring.find("Bearer mr-guess") is None
        True
        >>> ring
        KeyRing(team-a)
    """

    def __init__(self, clients: Iterable[tuple[str, Client]] | None = None) -> None:
        self.is_open = clients is None
        self.clients: tuple[Client, ...] = ()
        self._by_start: dict[bytes, tuple[bytes, Client]] = {}
        for written, client in clients or ():
            digest = bytes.fromhex(written.removeprefix("sha256:"))
            if digest[:_INDEXED] in self._by_start:
                other = self._by_start[digest[:_INDEXED]][1].name
                raise ArgumentError(
                    f"each client needs a key of its own, got the same hash for {other!r} and {client.name!r}; make one more."
                )
            self._by_start[digest[:_INDEXED]] = digest, client
            self.clients += (client,)

    @classmethod
    def read(cls, path: str | Path) -> KeyRing:
        r"""Read ``keys.yaml``; every error names file and line, and none shows a key.

        Example:
            >>> import tempfile
            >>> path = Path(tempfile.mkdtemp(), "keys.yaml")
            >>> _ = path.write_text('team-a: {hash: "' + hash_of(new_key()) + '", requests_per_minute: 600, dollars_per_day: 5}\n')
            >>> KeyRing.read(path).clients
            (Client(name='team-a', requests_per_minute=600, dollars_per_day=5),)
        """
        document = read_document(path)
        clients = {} if document.value is None else document.value
        _refuse_keys(document, clients, ())
        if not isinstance(clients, dict):
            raise document.error((), "the file must be a mapping of clients; write 'name: {hash: ...}', as 'mildroute keys new' does.")
        for name, settings in clients.items():
            _check_name(document, name)
            check_shape(document, (name,), settings, _SHAPE)
        _refuse_repeats(document, clients)
        return cls((settings["hash"], _client(name, settings)) for name, settings in clients.items())

    def become(self, other: KeyRing) -> None:
        """Know the clients of another ring from now on, and no others.

        Example:
            >>> ring = KeyRing([(hash_of(new_key()), Client("team-a"))])
            >>> ring.become(KeyRing([]))
            >>> ring.clients
            ()
        """
        self.is_open, self.clients, self._by_start = other.is_open, other.clients, other._by_start

    def find(self, authorization: str | None) -> Client | None:
        """The client whose key a header ``Authorization: Bearer mr-...`` brings, or none.

        Args:
            authorization: The header's value, or none if there is no such header.
        """
        if self.is_open:
            return ANYONE
        found = None if authorization is None else _BEARER.fullmatch(authorization)
        if found is None:
            return None
        digest = hashlib.sha256(found[1].encode("ascii")).digest()
        known, client = self._by_start.get(digest[:_INDEXED], (_NOBODY, None))
        return client if hmac.compare_digest(known, digest) else None

    def __repr__(self) -> str:
        """Names alone."""
        return "KeyRing(anyone)" if self.is_open else f"KeyRing({', '.join(client.name for client in self.clients)})"


def new_key() -> str:
    """A key that nobody has: ``mr-`` and 256 random bits.

    Example:
        >>> len(new_key()), new_key()[:3]
        (46, 'mr-')
    """
    return "mr-" + secrets.token_urlsafe(32)


def hash_of(key: str) -> str:
    """What is written down of a key.

    Example:
        >>> hash_of("mr-test")[:18]
        'sha256:d56a405d5a6'
    """
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def checked_name(name: Any) -> str:
    """The name itself, if a client may have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _KEY.match(name):
        shown = "what looks like a key" if isinstance(name, str) and _KEY.match(name) else f"{name!r:.60}"
        raise ArgumentError(
            f"a client's name must be at most 64 letters, digits, dots, dashes and underscores and not begin with a mark, got {shown}."
        )
    return name


def positive(value: Any) -> None:
    """Refuse what is no positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ArgumentError(f"it must be a positive number, got {value!r:.60}; leave the key out for no limit.")


def _check_hash(value: Any) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ArgumentError("it must be 'sha256:' and 64 digits of 0-9a-f (what is there is not shown); run 'mildroute keys new'.")


_SHAPE = Shape({"hash": _check_hash, "requests_per_minute": positive, "dollars_per_day": positive}, required=("hash",))


def _client(name: str, settings: dict[str, Any]) -> Client:
    return Client(name, settings.get("requests_per_minute"), settings.get("dollars_per_day"))


def _check_name(document: Document, name: str) -> None:
    try:
        checked_name(name)
    except ArgumentError as error:
        raise document.error((name,), str(error)) from None


def _refuse_keys(document: Document, value: Any, place: Place) -> None:
    """A key in place of its hash is refused before any other message could show it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_keys(document, name, (*place, name))
            _refuse_keys(document, inner, (*place, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_keys(document, inner, (*place, index))
    elif isinstance(value, str) and _KEY.search(value):
        raise document.error(
            place, "the file must hold hashes and no keys, got what looks like a key (not shown); run 'mildroute keys new' for a fresh one."
        )


def _refuse_repeats(document: Document, clients: dict[str, Any]) -> None:
    owners: dict[str, str] = {}
    for name, settings in clients.items():
        first = owners.setdefault(settings["hash"], name)
        if first != name:
            raise document.error((name, "hash"), f"{name!r} has the hash of {first!r}; each client needs a key of its own: make a new one.")
