"""API keys of clients: a YAML file of hashes, each with its limits."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute._yaml import (
    Check,
    Place,
    Shape,
    YamlDocument,
    check_shape,
    listed,
    nearest,
    read_document,
    text,
)
from mildroute.exceptions import ArgumentError

__all__ = [
    "ANYONE",
    "APIClient",
    "KeyStore",
    "add_client",
    "describe_clients",
    "hash_key",
    "new_key",
    "revoke_key",
]


# A key is ``mr-`` and 256 random bits. No one can search 2**256 keys, so one round of SHA-256 is a
# sound way to keep them; a slow function such as bcrypt is for passwords, which people choose from
# a small space, and would cost every request its milliseconds.
#
# A caller's key is hashed first, and only digests are compared. Digests are looked up by their
# first eight bytes and then compared in constant time, with a digest of no key where none was
# found. A caller who could measure the look-up would learn something of the digest of a key that
# it made up itself, cannot steer that digest, and could not find a key from a digest.
_PREFIX = 8
_NO_DIGEST = bytes(32)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] (mr-[A-Za-z0-9_-]{43})")
_KEY = re.compile(r"mr-[A-Za-z0-9_-]{20,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
# Of a limit: sums of it stay exact enough in a float.
_HIGHEST_LIMIT = 1e15


@dataclass(frozen=True)
class APIClient:
    """The holder of a key; a limit of ``None`` is no limit.

    Args:
        name: As the decision log and the metrics show it; empty if the gateway asks for no keys.
        requests_per_minute: Maximum requests per minute; each input of ``/v1/route`` is one.
        dollars_per_day: Maximum dollars per UTC day.
        models: Experts and routes that the client may name under ``model``; ``None`` allows all.
    """

    name: str
    requests_per_minute: float | None = None
    dollars_per_day: float | None = None
    models: frozenset[str] | None = None

    @property
    def has_limits(self) -> bool:
        """Whether its requests have to be counted."""
        return self.requests_per_minute is not None or self.dollars_per_day is not None

    def may_use(self, model: str) -> bool:
        """Return whether it may name this route or expert."""
        return self.models is None or model in self.models


# The caller of a gateway without keys.
ANYONE = APIClient("")


class KeyStore:
    """All clients of a gateway, by the hashes of their keys; it never holds a key.

    Args:
        clients: Each with a hash of its key, as :func:`hash_key` writes it. Without an argument the
            gateway asks for no keys, and every caller is :data:`ANYONE`; with an empty list no
            caller is admitted.
    """

    def __init__(self, clients: Iterable[tuple[str, APIClient]] | None = None) -> None:
        self.is_open = clients is None
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
        self.clients: tuple[APIClient, ...] = tuple(
            client for _, client in self._by_prefix.values()
        )

    @classmethod
    def read(cls, path: str | Path) -> KeyStore:
        """Read ``keys.yaml``; every error names file and line, and none shows a key."""
        return cls(
            (settings["hash"], _client_of(name, settings))
            for name, settings in _read_entries(path).items()
        )

    def __len__(self) -> int:
        """Return the number of clients."""
        return len(self.clients)

    @property
    def has_budgets(self) -> bool:
        """Whether a client may only spend so many dollars."""
        return any(client.dollars_per_day is not None for client in self.clients)

    def replace(self, other: KeyStore) -> None:
        """Know the clients of another store from now on, and no others."""
        self.is_open = other.is_open
        self.clients = other.clients
        self._by_prefix = other._by_prefix

    def find(self, authorization: str | None) -> APIClient | None:
        """Return the client whose key a header ``Authorization: Bearer mr-...`` brings, if any.

        Args:
            authorization: The header's value, or ``None`` if there is no such header.
        """
        if self.is_open:
            return ANYONE
        match = None if authorization is None else _BEARER.fullmatch(authorization)
        if match is None:
            return None
        digest = hashlib.sha256(match[1].encode("ascii")).digest()
        known, client = self._by_prefix.get(digest[:_PREFIX], (_NO_DIGEST, None))
        return client if hmac.compare_digest(known, digest) else None

    def __repr__(self) -> str:
        """Show names alone."""
        return (
            "KeyStore(anyone)"
            if self.is_open
            else f"KeyStore({', '.join(client.name for client in self.clients)})"
        )


def new_key() -> str:
    """Return a new key: ``mr-`` and 256 random bits."""
    return "mr-" + secrets.token_urlsafe(32)


def hash_key(key: str) -> str:
    """Return what is written down of a key."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def validate_name(name: Any) -> str:
    """Return the name itself, if a client may have it."""
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


def _check_limit(value: Any) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 < value <= _HIGHEST_LIMIT:
        raise ArgumentError(
            f"it must be a positive number, got {value!r:.60}; 1e15 is the highest limit, or leave"
            " the key out for no limit."
        )


def _check_hash(value: Any) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ArgumentError(
            "it must be 'sha256:' and 64 digits of 0-9a-f (what is there is not shown); run"
            " 'mildroute keys new'."
        )


def _check_models(value: Any) -> None:
    listed(text)(value)
    if not value:
        raise ArgumentError("it must name a route or an expert, got []; leave it out for all.")


_CHECKS: dict[str, Check] = {
    "hash": _check_hash,
    "requests_per_minute": _check_limit,
    "dollars_per_day": _check_limit,
    "models": _check_models,
}
_SHAPE = Shape(_CHECKS, required=("hash",))


def _read_entries(path: str | Path) -> dict[str, Any]:
    """Return the checked settings of each client."""
    document = read_document(path)
    entries = {} if document.value is None else document.value
    _refuse_keys(document, entries, ())
    if not isinstance(entries, dict):
        raise document.error(
            (),
            "the file must be a mapping of clients; write 'name: {hash: ...}', as 'mildroute"
            " keys new' does.",
        )
    owners: dict[str, str] = {}
    for name, settings in entries.items():
        _check_name(document, name, (name,))
        check_shape(document, (name,), settings, _SHAPE)
        owner = owners.setdefault(settings["hash"], name)
        if owner != name:
            raise document.error(
                (name, "hash"),
                f"{name!r} has the hash of {owner!r}; each client needs a key of its own: make a"
                " new one.",
            )
    return entries


def _client_of(name: str, settings: dict[str, Any]) -> APIClient:
    models = settings.get("models")
    return APIClient(
        name,
        settings.get("requests_per_minute"),
        settings.get("dollars_per_day"),
        None if models is None else frozenset(models),
    )


def _check_name(document: YamlDocument, name: str, place: Place) -> None:
    try:
        validate_name(name)
    except ArgumentError as error:
        raise document.error(place, str(error)) from None


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


# Changes of keys.yaml: an entry that changes becomes one line, and all other lines stay as they
# are, comments included. The file is replaced as a whole, so that a gateway never reads half of
# it, and only if it reads as before except for this entry. A new file can be read by its owner
# alone.


def add_client(path: str | Path, name: str, **settings: Any) -> str:
    """Make a key for a new client, and add its hash to a file, which is made if there is none.

    Args:
        path: Of ``keys.yaml``.
        name: Of the client.
        settings: As the file has them, such as ``dollars_per_day=5``; ``None`` counts as left out.

    Returns:
        The key.
    """
    validate_name(name)
    key = new_key()

    def add(entries: dict[str, Any]) -> dict[str, Any]:
        if name in entries:
            raise ArgumentError(
                f"{Path(path).name} has a client {name!r} already; choose another name, or revoke"
                " its key first."
            )
        return {"hash": hash_key(key)} | settings

    _write_entry(path, name, add)
    return key


def revoke_key(path: str | Path, name: str) -> None:
    """Remove a client, so that its key admits no one any more."""

    def remove(entries: dict[str, Any]) -> None:
        if name not in entries:
            hint = nearest(name, entries) if entries else "see 'mildroute keys list'."
            raise ArgumentError(
                f"{Path(path).name} must have the client {name!r:.60}, got none; {hint}"
            )

    _write_entry(path, name, remove)


def describe_clients(path: str | Path) -> list[dict[str, Any]]:
    """Return the name and the settings of each client of a file, without hashes."""
    return [
        {"name": name} | {key: value for key, value in settings.items() if key != "hash"}
        for name, settings in _read_entries(path).items()
    ]


def _write_entry(
    path: str | Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any] | None]
) -> None:
    """Write what becomes of a client's entry; ``None`` removes it."""
    path = Path(path).resolve()
    beside = path.with_name(f".{path.name}.new")
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ArgumentError(
            f"{path.name} is being written by another process; try again, or remove"
            f" {beside.name!r} if there is none."
        ) from None
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error.strerror}; check the folder."
        ) from None
    try:
        entries = _read_entries(path) if path.exists() else {}
        changed = change(entries)
        expected = {key: value for key, value in entries.items() if key != name}
        line = ""
        if changed is not None:
            settings = {key: value for key, value in changed.items() if value is not None}
            expected[name] = settings
            line = f"{json.dumps(name)}: {json.dumps(settings)}\n"
        with os.fdopen(file, "w", encoding="utf-8", newline="") as stream:
            stream.write(_with_entry(path, name, line))
            stream.flush()
            os.fsync(stream.fileno())
        _check_written(beside, path, expected)
        _keep_access(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _with_entry(path: Path, name: str, line: str) -> str:
    """Return the file with this line in place of the client's entry, or at its end."""
    if not path.exists():
        return line
    lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    document = read_document(path)
    places = sorted(document.line((key,)) - 1 for key in document.value or ())
    start = len(lines)
    end = start
    if document.value and name in document.value:
        start = document.line((name,)) - 1
        end = next((place for place in places if place > start), end)
        # What is written between two entries belongs to the second.
        while end > start + 1 and lines[end - 1].lstrip()[:1] in ("", "#"):
            end -= 1
    return "".join([*lines[:start], line, *lines[end:]])


def _check_written(beside: Path, path: Path, expected: dict[str, Any]) -> None:
    """Refuse a file that does not say what it should, with the reason."""
    written = None
    try:
        written = _read_entries(beside)
    except ArgumentError as error:
        message = str(error).replace(beside.name, path.name)
        if "not valid YAML" not in message:
            raise ArgumentError(message) from None
    if written != expected:
        raise ArgumentError(
            f"nothing can be changed in {path.name}, for its clients are not written one below the"
            " other; write them so."
        )


def _keep_access(path: Path, beside: Path) -> None:
    """Users that could read the file, such as the gateway's own, still can."""
    if path.exists():
        before = path.stat()
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(beside, before.st_uid, before.st_gid)
        beside.chmod(before.st_mode & 0o777)
