"""API keys of clients, looked up by their hashes.

A key is ``mr-`` followed by 256 random bits. Nobody can search 2**256 keys, so one round of SHA-256
protects them. A slow function such as bcrypt is meant for passwords, which people choose from a
small space, and would add milliseconds to every request.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from mildroute.exceptions import ArgumentError
from mildroute.gateway.key_file import read_key_file

__all__ = ["ANYONE", "APIClient", "KeyStore", "hash_key", "new_key"]

# Digests are looked up by their first eight bytes and then compared in constant time, with a dummy
# digest if none matches. A caller who could measure the lookup would learn only about the digest of
# a made-up key, which the caller cannot choose and from which no valid key can be derived.
_PREFIX_BYTES = 8
_NO_DIGEST = bytes(32)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] (mr-[A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class APIClient:
    """The owner of a key; a limit of ``None`` means unlimited.

    Args:
        name: Name in the decision log and the metrics; empty if the gateway requires no keys.
        requests_per_minute: Maximum requests per minute; each input of ``/v1/route`` counts as one.
        dollars_per_day: Maximum dollars per UTC day.
        models: Experts and routes that the client may name as ``model``; ``None`` allows all.
    """

    name: str
    requests_per_minute: float | None = None
    dollars_per_day: float | None = None
    models: frozenset[str] | None = None

    @property
    def has_limits(self) -> bool:
        """Return whether the client's requests have to be counted."""
        return self.requests_per_minute is not None or self.dollars_per_day is not None

    def may_use(self, model: str) -> bool:
        """Return whether the client is allowed to use this route or expert."""
        return self.models is None or model in self.models


# The client of a gateway without keys.
ANYONE = APIClient("")


class KeyStore:
    """All clients of a gateway by the hashes of their keys, without the keys themselves.

    Args:
        clients: The hash of each client's key, as returned by :func:`hash_key`, and the client.
            ``None`` means that the gateway requires no keys and every caller is :data:`ANYONE`; an
            empty list admits nobody.
    """

    def __init__(self, clients: Iterable[tuple[str, APIClient]] | None = None) -> None:
        self.is_open = clients is None
        self._by_prefix: dict[bytes, tuple[bytes, APIClient]] = {}
        for hash_text, client in clients or ():
            digest = bytes.fromhex(hash_text.removeprefix("sha256:"))
            if digest[:_PREFIX_BYTES] in self._by_prefix:
                other = self._by_prefix[digest[:_PREFIX_BYTES]][1].name
                raise ArgumentError(
                    f"each client needs its own key, got the same hash for {other!r} and"
                    f" {client.name!r}; create another key."
                )
            self._by_prefix[digest[:_PREFIX_BYTES]] = digest, client
        self.clients: tuple[APIClient, ...] = tuple(
            client for _, client in self._by_prefix.values()
        )

    @classmethod
    def read(cls, path: str | Path) -> KeyStore:
        """Read ``keys.yaml``; errors name the file and line, and never show a key."""
        return cls(
            (
                client.hash,
                APIClient(
                    name,
                    client.requests_per_minute,
                    client.dollars_per_day,
                    None if client.models is None else frozenset(client.models),
                ),
            )
            for name, client in read_key_file(path).items()
        )

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.clients)

    @property
    def has_budgets(self) -> bool:
        """Return whether any client has a dollar limit."""
        return any(client.dollars_per_day is not None for client in self.clients)

    @property
    def has_limits(self) -> bool:
        """Return whether any client has a limit of requests or dollars."""
        return any(client.has_limits for client in self.clients)

    def replace(self, other: KeyStore) -> None:
        """Replace all clients with those of another store."""
        self.is_open = other.is_open
        self.clients = other.clients
        self._by_prefix = other._by_prefix

    def find(self, authorization: str | None) -> APIClient | None:
        """Return the client of a header ``Authorization: Bearer mr-...``, or ``None``.

        Args:
            authorization: The header's value, or ``None`` if there is no such header.
        """
        if self.is_open:
            return ANYONE
        match = None if authorization is None else _BEARER.fullmatch(authorization)
        if match is None:
            return None
        digest = hashlib.sha256(match[1].encode("ascii")).digest()
        stored, client = self._by_prefix.get(digest[:_PREFIX_BYTES], (_NO_DIGEST, None))
        return client if hmac.compare_digest(stored, digest) else None

    def __repr__(self) -> str:
        """Return a representation that shows only names."""
        return (
            "KeyStore(anyone)"
            if self.is_open
            else f"KeyStore({', '.join(client.name for client in self.clients)})"
        )


def check_shared_limits(key_store: KeyStore, store_url: str | None) -> None:
    """Reject keys with limits if several processes would each apply them in full.

    Raises:
        ArgumentError: A key has a limit, and the processes share no store.
    """
    if key_store.has_limits and store_url is None:
        raise ArgumentError(
            "the key file has keys with limits, which each worker would apply on its own; name a"
            " Redis or Valkey server under store, or omit --workers."
        )


def new_key() -> str:
    """Return a new key: ``mr-`` followed by 256 random bits."""
    return "mr-" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """Return the hash of a key in the format of the key file."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()
