"""API keys: hashes, the file of keys, and the keys of operators."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import math
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute._yaml import Place, Shape, YamlDocument, check_shape, read_document
from mildroute.exceptions import ArgumentError
from mildroute.experts.secrets import Secret
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Request

__all__ = ["ANYONE", "APIClient", "AdminAuth", "KeyStore", "add_client", "hash_key", "new_key"]


# Client keys: who may call the gateway, known by the hashes of their keys alone.
#
# A key is made by us: ``mr-`` and 256 random bits. No one can search 2**256 keys, so one round of
# SHA-256 is a sound way to keep them; a slow function such as bcrypt is for passwords, which
# people choose from a small space, and would cost every request its milliseconds.
#
# What the time of an answer can tell: a caller's key is hashed first, and only digests are
# compared. Digests are looked up by their first eight bytes and then compared in constant time,
# with a digest of nobody's where none was found. Even a caller who could measure the look-up
# would learn something of the digest of a key that it made up itself, cannot steer that digest,
# and could not find a key from a digest.


_BEARER = re.compile(r"[Bb]earer (mr-[A-Za-z0-9_-]{43})")
_KEY = re.compile(r"mr-[A-Za-z0-9_-]{20,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NO_DIGEST = b"\0" * 32
_PREFIX = 8


@dataclass(frozen=True)
class APIClient:
    """Who calls.

    Args:
        name: As the decision log and the metrics show it; empty where the gateway asks for no keys.
        requests_per_minute: That are let through, or none for no limit.
        dollars_per_day: That may be spent in a day of UTC, or none for no limit.
    """

    name: str
    requests_per_minute: float | None = None
    dollars_per_day: float | None = None


# The caller of a gateway without keys.
ANYONE = APIClient("")


class KeyStore:
    """All clients of a gateway, by the hashes of their keys; it never holds a key.

    Args:
        clients: Each with the hash of its key, as ``hash_key`` writes it. Without an argument the
            gateway asks for no keys, and everyone is
            :data:`ANYONE`; with an empty list nobody is let in.
    """

    def __init__(self, clients: Iterable[tuple[str, APIClient]] | None = None) -> None:
        self.is_open = clients is None
        self.clients: tuple[APIClient, ...] = ()
        self._by_prefix: dict[bytes, tuple[bytes, APIClient]] = {}
        for written, client in clients or ():
            digest = bytes.fromhex(written.removeprefix("sha256:"))
            if digest[:_PREFIX] in self._by_prefix:
                other = self._by_prefix[digest[:_PREFIX]][1].name
                raise ArgumentError(
                    f"each client needs a key of its own, got the same hash for {other!r} and"
                    f" {client.name!r}; make one more."
                )
            self._by_prefix[digest[:_PREFIX]] = digest, client
            self.clients += (client,)

    @classmethod
    def read(cls, path: str | Path) -> KeyStore:
        r"""Read ``keys.yaml``; every error names file and line, and none shows a key."""
        document = read_document(path)
        clients = {} if document.value is None else document.value
        _refuse_keys(document, clients, ())
        if not isinstance(clients, dict):
            raise document.error(
                (),
                "the file must be a mapping of clients; write 'name: {hash: ...}', as 'mildroute"
                " keys new' does.",
            )
        for name, settings in clients.items():
            _check_name(document, name)
            check_shape(document, (name,), settings, _SHAPE)
        _refuse_repeats(document, clients)
        return cls(
            (settings["hash"], _client(name, settings)) for name, settings in clients.items()
        )

    def replace(self, other: KeyStore) -> None:
        """Know the clients of another store from now on, and no others."""
        self.is_open = other.is_open
        self.clients = other.clients
        self._by_prefix = other._by_prefix

    def find(self, authorization: str | None) -> APIClient | None:
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
        known, client = self._by_prefix.get(digest[:_PREFIX], (_NO_DIGEST, None))
        return client if hmac.compare_digest(known, digest) else None

    def __repr__(self) -> str:
        """Names alone."""
        return (
            "KeyStore(anyone)"
            if self.is_open
            else f"KeyStore({', '.join(client.name for client in self.clients)})"
        )


def new_key() -> str:
    """A key that nobody has: ``mr-`` and 256 random bits."""
    return "mr-" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """What is written down of a key."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def validate_name(name: Any) -> str:
    """The name itself, if a client may have it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _KEY.match(name):
        shown = (
            "what looks like a key"
            if isinstance(name, str) and _KEY.match(name)
            else f"{name!r:.60}"
        )
        raise ArgumentError(
            "a client's name must be at most 64 letters, digits, dots, dashes and underscores and"
            f" not begin with a mark, got {shown}."
        )
    return name


def check_positive(value: Any) -> None:
    """Refuse what is no positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise ArgumentError(
            f"it must be a positive number, got {value!r:.60}; leave the key out for no limit."
        )


def _check_hash(value: Any) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ArgumentError(
            "it must be 'sha256:' and 64 digits of 0-9a-f (what is there is not shown); run"
            " 'mildroute keys new'."
        )


_SHAPE = Shape(
    {"hash": _check_hash, "requests_per_minute": check_positive, "dollars_per_day": check_positive},
    required=("hash",),
)


def _client(name: str, settings: dict[str, Any]) -> APIClient:
    return APIClient(name, settings.get("requests_per_minute"), settings.get("dollars_per_day"))


def _check_name(document: YamlDocument, name: str) -> None:
    try:
        validate_name(name)
    except ArgumentError as error:
        raise document.error((name,), str(error)) from None


def _refuse_keys(document: YamlDocument, value: Any, place: Place) -> None:
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
            place,
            "the file must hold hashes and no keys, got what looks like a key (not shown); run"
            " 'mildroute keys new' for a fresh one.",
        )


def _refuse_repeats(document: YamlDocument, clients: dict[str, Any]) -> None:
    owners: dict[str, str] = {}
    for name, settings in clients.items():
        first = owners.setdefault(settings["hash"], name)
        if first != name:
            raise document.error(
                (name, "hash"),
                f"{name!r} has the hash of {first!r}; each client needs a key of its own: make a"
                " new one.",
            )


# Adds a client to keys.yaml: its hash is written down, its key is shown once and kept nowhere.


def add_client(path: str | Path, client: APIClient) -> str:
    """Make a key for a client and append its hash to a file, which is made if there is none.

    The file is replaced as a whole, so that a gateway never reads half of it; comments stay. A new
    file can be read by its owner alone.

    Args:
        path: ``keys.yaml``.
        client: Name and limits.
    """
    path = Path(path).resolve()
    limits = _checked_limits(client)
    beside = path.with_name(f".{path.name}.new")
    key = new_key()
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ArgumentError(
            f"{path.name} is being written by someone else; try again, or remove {beside.name!r} if"
            " nobody is."
        ) from None
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error.strerror}; check the folder."
        ) from None
    try:
        with os.fdopen(file, "w", encoding="utf-8", newline="") as stream:
            stream.write(
                _content(path, client.name)
                + f"{json.dumps(client.name)}: {json.dumps({'hash': hash_key(key), **limits})}\n"
            )
            stream.flush()
            os.fsync(stream.fileno())
        _check(beside, path, client.name)
        _keep_access(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return key


def _checked_limits(client: APIClient) -> dict[str, float]:
    validate_name(client.name)
    limits = {
        "requests_per_minute": client.requests_per_minute,
        "dollars_per_day": client.dollars_per_day,
    }
    for name, limit in limits.items():
        if limit is not None:
            try:
                check_positive(limit)
            except ArgumentError as error:
                raise ArgumentError(f"{name}: {error}") from None
    return {name: limit for name, limit in limits.items() if limit is not None}


def _content(path: Path, name: str) -> str:
    """What the file holds, which is checked before anything is added to it."""
    if not path.exists():
        return ""
    if name in {client.name for client in KeyStore.read(path).clients}:
        raise ArgumentError(
            f"{path.name} has a client {name!r} already; choose another name, or remove its line to"
            " replace its key."
        )
    text = path.read_text(encoding="utf-8-sig")
    return text if not text or text.endswith("\n") else text + "\n"


def _check(beside: Path, path: Path, name: str) -> None:
    try:
        names = [client.name for client in KeyStore.read(beside).clients]
    except ArgumentError:
        names = []
    if name not in names:
        raise ArgumentError(
            f"nothing can be appended to {path.name}, for its clients are not written one below the"
            " other; write them so."
        )


def _keep_access(path: Path, beside: Path) -> None:
    """Whoever could read the file, such as the gateway's own user, still can."""
    if path.exists():
        before = path.stat()
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(beside, before.st_uid, before.st_gid)
        beside.chmod(before.st_mode & 0o777)


# Paths that need the operator's own key.


class AdminAuth:
    """Checks the key of an operator, which is none of the clients'."""

    def __init__(self, secret: Secret) -> None:
        # Digests have one length, so that not even the length of the key can be measured.
        self._wanted = hashlib.sha256(secret.bearer()).digest()

    def check(self, request: Request) -> None:
        """An APIError if the request does not have it."""
        sent = hashlib.sha256(request.header(b"authorization") or b"").digest()
        if not hmac.compare_digest(sent, self._wanted):
            raise APIError(401, "the operator's own key is needed, as 'Authorization: Bearer ...'.")
