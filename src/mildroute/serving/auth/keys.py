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
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from mildroute.experts.secrets import Secret
from mildroute.serving.auth.database import (
    NO_DIGEST,
    PREFIX,
    ClientExistsError,
    DatabaseError,
    KeyDatabase,
    hashes_of,
    is_database_url,
    run_behind_gateway,
)
from mildroute.serving.config import ON_FAILURE, one_of
from mildroute.serving.http.errors import APIError

if TYPE_CHECKING:
    # Keys are made in processes of their own, which start ten times as fast without scikit-learn.
    from mildroute.serving.http.request import Request

__all__ = [
    "ANYONE",
    "LIMITS",
    "APIClient",
    "AdminAuth",
    "ClientTeam",
    "KeyStore",
    "Tenant",
    "UnknownClientError",
    "add_client",
    "add_clients",
    "client_from_settings",
    "create_clients",
    "describe_clients",
    "describe_page",
    "hash_key",
    "import_clients",
    "new_key",
    "numbered_clients",
    "put_team",
    "revoke_key",
    "rotate_key",
]


# Client keys: who may call the gateway, known by the hashes of their keys alone.
#
# A key is made by us: ``mr-`` and 256 random bits. No one can search 2**256 keys, so one round of
# SHA-256 is a sound way to keep them; a slow function such as bcrypt is for passwords, which
# people choose from a small space, and would cost every request its milliseconds.
#
# What the time of an answer can tell: a caller's key is hashed first, and only digests are
# compared. Digests are looked up by their first eight bytes and then compared in constant time,
# with a digest of no key where none was found. Even a caller who could measure the look-up
# would learn something of the digest of a key that it made up itself, cannot steer that digest,
# and could not find a key from a digest.


_BEARER = re.compile(r"[Bb]earer (mr-[A-Za-z0-9_-]{43})")
_KEY = re.compile(r"mr-[A-Za-z0-9_-]{20,}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
# Of one client: the latest key, and the one that it replaces.
_MAX_HASHES = 2
# The entry of the key file that holds no client.
_TEAMS = "teams"
# Of one request.
_MOST_NEW_CLIENTS = 10_000


class UnknownClientError(ArgumentError):
    """There is no client of a name."""


@dataclass(frozen=True)
class Tenant:
    """A name and its limits; none of them is no limit.

    Args:
        name: As the decision log and the metrics show it; empty if the gateway asks for no keys.
        requests_per_minute: That are let through; each input of ``/v1/route`` is one.
        dollars_per_day: That may be spent in a day of UTC.
        tokens_per_minute: Of requests and responses together.
        dollars_per_month: That may be spent in a month of UTC.
        max_in_flight: Requests at the same time.
        on_failure: What becomes of its limits while the store that gateways share is away, as
            ``store.on_failure`` has it, or none for that setting.
    """

    name: str
    requests_per_minute: float | None = None
    dollars_per_day: float | None = None
    tokens_per_minute: float | None = None
    dollars_per_month: float | None = None
    max_in_flight: int | None = None
    on_failure: str | None = None

    @cached_property
    def limits(self) -> dict[str, float]:
        """The limits that it has, by name."""
        found = {name: getattr(self, name) for name in LIMITS}
        return {name: limit for name, limit in found.items() if limit is not None}


# Names of the limits, as keys.yaml has them.
LIMITS = tuple(field.name for field in fields(Tenant) if field.name not in ("name", "on_failure"))


@dataclass(frozen=True)
class ClientTeam(Tenant):
    """Keys whose sum has limits of its own.

    Args:
        members: Names of its clients.
    """

    members: Collection[str] = ()


@dataclass(frozen=True)
class APIClient(Tenant):
    """A client: the holder of a key.

    Args:
        models: What it may name under ``model``, experts and routes, or none for all.
        expires: Seconds since 1970 from which its key is refused, or none.
        team: Whose limits hold for it, too, or none.
    """

    models: frozenset[str] | None = None
    expires: float | None = None
    team: ClientTeam | None = None

    @cached_property
    def tenants(self) -> tuple[Tenant, ...]:
        """The client and its team."""
        return (self,) if self.team is None else (self, self.team)

    @cached_property
    def places(self) -> tuple[tuple[str, int | None], ...]:
        """Names under which requests in flight are counted, each with the most of them."""
        own = (self.name, self.max_in_flight)
        # No client's name has a colon.
        return (
            (own,)
            if self.team is None
            else (own, (f"team:{self.team.name}", self.team.max_in_flight))
        )

    def may_use(self, model: str) -> bool:
        """Whether it may name this route or expert."""
        return self.models is None or model in self.models


# The caller of a gateway without keys.
ANYONE = APIClient("")


class KeyStore:
    """All clients of a gateway, by the hashes of their keys; it never holds a key.

    Args:
        clients: Each with a hash of its key, as ``hash_key`` writes it; a client whose key is
            being rotated comes with each of its two. Without an argument the gateway asks for no
            keys, and every caller is :data:`ANYONE`; with an empty list no caller is admitted.
    """

    def __init__(self, clients: Iterable[tuple[str, APIClient]] | None = None) -> None:
        self.is_open = clients is None
        self._by_prefix: dict[bytes, tuple[bytes, APIClient]] = {}
        for written, client in clients or ():
            digest = bytes.fromhex(written.removeprefix("sha256:"))
            if digest[:PREFIX] in self._by_prefix:
                other = self._by_prefix[digest[:PREFIX]][1].name
                raise ArgumentError(
                    f"each client needs a key of its own, got the same hash for {other!r} and"
                    f" {client.name!r}; make one more."
                )
            self._by_prefix[digest[:PREFIX]] = digest, client
        by_name = {client.name: client for _, client in self._by_prefix.values()}
        self.clients: tuple[APIClient, ...] = tuple(by_name.values())

    @classmethod
    def read(cls, path: str | Path) -> KeyStore:
        """Read ``keys.yaml``; every error names file and line, and none shows a key."""
        entries, teams = _read_entries(path)
        members: dict[str, list[str]] = {}
        for name, settings in entries.items():
            members.setdefault(settings.get("team", ""), []).append(name)
        found = {
            name: ClientTeam(name, **(limits or {}), members=tuple(members.get(name, ())))
            for name, limits in teams.items()
        }
        clients = {
            name: client_from_settings(name, settings, found) for name, settings in entries.items()
        }
        return cls(
            (written, clients[name])
            for name, settings in entries.items()
            for written in hashes_of(settings)
        )

    def __len__(self) -> int:
        """Clients that there are."""
        return len(self.clients)

    @property
    def age(self) -> float:
        """Seconds since it was known to be what the database holds; NaN without a database."""
        return math.nan

    def start(self) -> None:
        """Follow the changes of a database, if the keys are in one."""

    def stop(self) -> None:
        """Follow no more."""

    def reread(self, path: str | Path) -> None:
        """Know the clients of a file from now on, and no others."""
        self.replace(KeyStore.read(path))

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
        return self._find_digest(hashlib.sha256(found[1].encode("ascii")).digest())

    def _find_digest(self, digest: bytes) -> APIClient | None:
        known, client = self._by_prefix.get(digest[:PREFIX], (NO_DIGEST, None))
        return client if hmac.compare_digest(known, digest) else None

    def __repr__(self) -> str:
        """Names alone."""
        return (
            "KeyStore(anyone)"
            if self.is_open
            else f"KeyStore({', '.join(client.name for client in self.clients)})"
        )


def new_key() -> str:
    """A new key: ``mr-`` and 256 random bits."""
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


# Of a limit: sums of it stay exact enough in a float.
_MOST = 1e15


def check_positive(value: Any) -> None:
    """Refuse what is no positive number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MOST:
        raise ArgumentError(
            f"it must be a positive number, got {value!r:.60}; 1e15 is the highest limit, or leave"
            " the key out for none."
        )


def _check_hash(value: Any) -> None:
    if not isinstance(value, str) or not _HASH.fullmatch(value):
        raise ArgumentError(
            "it must be 'sha256:' and 64 digits of 0-9a-f (what is there is not shown); run"
            " 'mildroute keys new'."
        )


def _check_hashes(value: Any) -> None:
    if not isinstance(value, list):
        _check_hash(value)
        return
    if not 1 <= len(value) <= _MAX_HASHES:
        raise ArgumentError(
            f"it must be one hash, or two while a key is rotated, got {len(value)}; run 'mildroute"
            " keys rotate --finish'."
        )
    for one in value:
        _check_hash(one)


def _check_count(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise ArgumentError(
            f"it must be a whole number of at least 1, got {value!r:.60}; 1e15 is the highest"
            " limit, or leave the key out for none."
        )


def _check_models(value: Any) -> None:
    listed(text)(value)
    if not value:
        raise ArgumentError("it must name a route or an expert, got []; leave it out for all.")


def parse_date(value: Any) -> float:
    """Seconds since 1970 of a date, or a date and a time; UTC unless it names its zone."""
    try:
        found = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"it must be a date as ISO 8601 writes it, got {value!r:.60}; write 2027-01-31, or"
            " 2027-01-31T12:00:00Z."
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


_CHECKS: dict[str, Check] = dict.fromkeys(LIMITS, check_positive) | {
    "max_in_flight": _check_count,
    "on_failure": one_of(ON_FAILURE),
}
_TEAM_SHAPE = Shape(_CHECKS)
_OWN_CHECKS: dict[str, Check] = {
    "hash": _check_hashes,
    "expires": parse_date,
    "models": _check_models,
    "team": text,
}
_SHAPE = Shape(_OWN_CHECKS | _CHECKS, required=("hash",))


def _read_entries(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The checked settings of each client, and those of each team."""
    if is_database_url(path):
        with contextlib.closing(KeyDatabase(str(path))) as database:
            rows = sorted(database.clients())
            return {row.name: row.entry() for row in rows}, dict(database.teams())
    document = read_document(path)
    entries = {} if document.value is None else document.value
    _refuse_keys(document, entries, ())
    if not isinstance(entries, dict):
        raise document.error(
            (),
            "the file must be a mapping of clients; write 'name: {hash: ...}', as 'mildroute"
            " keys new' does.",
        )
    teams = entries.pop(_TEAMS, None) or {}
    _check_teams(document, teams)
    _check_clients(document, entries, teams)
    return entries, teams


def _check_teams(document: YamlDocument, teams: dict[str, Any]) -> None:
    shape = Shape(dict.fromkeys(teams, (_check_empty, _TEAM_SHAPE)))
    check_shape(document, (_TEAMS,), teams, shape)
    for name in teams:
        _check_name(document, name, (_TEAMS, name))


def _check_clients(
    document: YamlDocument, entries: dict[str, Any], teams: Mapping[str, Any]
) -> None:
    for name, settings in entries.items():
        _check_name(document, name, (name,))
        check_shape(document, (name,), settings, _SHAPE)
        team = settings.get("team")
        if team is not None and team not in teams:
            raise document.error(
                (name, "team"),
                f"unknown team {team!r:.60}; write it below 'teams:', with its limits, or run"
                " 'mildroute keys team' for a database.",
            )
    _refuse_repeats(document, entries)


def _check_empty(value: Any) -> None:
    if value is not None:
        raise ArgumentError(
            f"it must be a mapping of limits, got {value!r:.60}; write {{}} for none."
        )


def client_from_settings(
    name: str, settings: Mapping[str, Any], teams: Mapping[str, ClientTeam]
) -> APIClient:
    """A client of checked settings."""
    models, expires = settings.get("models"), settings.get("expires")
    return APIClient(
        name,
        models=None if models is None else frozenset(models),
        expires=None if expires is None else parse_date(expires),
        team=teams.get(settings.get("team", "")),
        **{name: settings[name] for name in _CHECKS if name in settings},
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


def _refuse_repeats(document: YamlDocument, clients: dict[str, Any]) -> None:
    owners: dict[str, str] = {}
    for name, settings in clients.items():
        for written in hashes_of(settings):
            if written in owners:
                raise document.error(
                    (name, "hash"),
                    f"{name!r} has the hash of {owners[written]!r}; each client needs a key of its"
                    " own: make a new one.",
                )
            owners[written] = name


# Changes of keys.yaml, or of a database that is named by its URL in place of the file: hashes are
# written down, a key is shown once and kept nowhere.
#
# In a file an entry that changes becomes one line; all other lines stay as they are, comments
# included. The file is replaced as a whole, so that a gateway never reads half of it, and only if
# it reads as before except for this entry. A new file can be read by its owner alone.


def add_client(path: str | Path, name: str, **settings: Any) -> str:
    """Make a key for a new client, and add its hash to a file, which is made if there is none.

    Args:
        path: ``keys.yaml``, or the URL of a database.
        name: Of the client.
        settings: As the file has them, such as ``dollars_per_day=5``; none counts as left out.

    Returns:
        The key.
    """
    validate_name(name)
    key = new_key()

    def add(entries: dict[str, Any]) -> dict[str, Any]:
        if name in entries or name == _TEAMS:
            raise ClientExistsError(
                f"{Path(path).name} has a client {name!r} already; choose another name, or run"
                " 'mildroute keys rotate' to replace its key."
            )
        return {"hash": hash_key(key)} | settings

    _write_entry(path, name, add)
    return key


def rotate_key(path: str | Path, name: str, *, finish: bool = False) -> str | None:
    """Give a client a second key; the one it has stays valid until the rotation is finished.

    Args:
        path: ``keys.yaml``, or the URL of a database.
        name: Of the client.
        finish: Whether to end a rotation instead: only the latest key stays valid.

    Returns:
        The new key; none if a rotation was finished.
    """
    key = None if finish else new_key()

    def rotate(entries: dict[str, Any]) -> dict[str, Any]:
        entry = _entry_of(path, entries, name)
        if key is not None and parse_date(entry.get("expires", "9999-12-31")) <= time.time():
            raise ArgumentError(
                f"{name!r} has expired or was revoked, and so would its new key; make a client of"
                " another name, or change 'expires' first."
            )
        latest = hashes_of(entry)[0]
        return entry | {"hash": latest if key is None else [hash_key(key), latest]}

    _write_entry(path, name, rotate)
    return key


def revoke_key(path: str | Path, name: str, now: float) -> None:
    """Let the keys of a client expire now; its entry stays, so that its callers are told why."""
    expires = datetime.fromtimestamp(math.floor(now), UTC).isoformat()

    def revoke(entries: dict[str, Any]) -> dict[str, Any]:
        return _entry_of(path, entries, name) | {"expires": expires}

    _write_entry(path, name, revoke)


def describe_clients(path: str | Path, now: float) -> list[dict[str, Any]]:
    """Name, status and settings of each client of a file, without hashes.

    Its status is ``"valid"``, ``"rotating"`` or ``"expired"``.
    """
    entries, _ = _read_entries(path)
    return [_described(name, settings, now) for name, settings in entries.items()]


def describe_page(url: str, now: float, after: str, limit: int) -> list[dict[str, Any]]:
    """The same of the clients of a database whose names come after another one."""
    with contextlib.closing(KeyDatabase(url)) as database:
        return [_described(row.name, row.entry(), now) for row in database.page(after, limit)]


def _described(name: str, settings: Mapping[str, Any], now: float) -> dict[str, Any]:
    expires = settings.get("expires")
    status = "rotating" if len(hashes_of(settings)) > 1 else "valid"
    if expires is not None and parse_date(expires) <= now:
        status = "expired"
    shown = {key: value for key, value in settings.items() if key != "hash"}
    return {"name": name, "status": status} | shown


def _entry_of(path: str | Path, entries: dict[str, Any], name: str) -> dict[str, Any]:
    if name not in entries:
        way_out = nearest(name, entries) if entries else "see 'mildroute keys list'."
        raise UnknownClientError(
            f"{Path(path).name} must have the client {name!r:.60}, got none; {way_out}"
        )
    return dict(entries[name])


def _write_entry(
    path: str | Path, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    if is_database_url(path):
        _write_client(str(path), name, change)
        return
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
        entries, teams = _read_entries(path) if path.exists() else ({}, {})
        settings = {key: value for key, value in change(entries).items() if value is not None}
        with os.fdopen(file, "w", encoding="utf-8", newline="") as stream:
            stream.write(_with_entry(path, name, f"{json.dumps(name)}: {json.dumps(settings)}\n"))
            stream.flush()
            os.fsync(stream.fileno())
        _check_written(beside, path, entries | {name: settings}, teams)
        _keep_access(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


class _DatabaseDocument(YamlDocument):
    """Settings on their way to a database, which has no lines that a message could name."""

    def error(self, place: Place, message: str) -> ArgumentError:
        client = f" {place[0]}:" if len(place) > 1 else ""
        return ArgumentError(f"{self.name}:{client} {message}")


def _write_client(url: str, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    with _change(url) as (database, version):
        row = database.client(name)
        changed = change({} if row is None else {name: row.entry()})
        settings = {key: value for key, value in changed.items() if value is not None}
        _check_clients(_document(url), {name: settings}, database.teams())
        if row is None:
            database.add([(name, settings)], version)
        else:
            database.replace(name, settings, version)


@contextmanager
def _change(url: str) -> Iterator[tuple[KeyDatabase, int]]:
    """A transaction of the one writer of a database, and the version that its changes get."""
    with (
        contextlib.closing(KeyDatabase(url, create=True)) as database,
        database.change() as version,
    ):
        yield database, version


def _document(url: str) -> YamlDocument:
    return _DatabaseDocument(Path(url).name, None)


def numbered_clients(prefix: str, count: int, **settings: Any) -> dict[str, dict[str, Any]]:
    """Clients that differ in their numbers alone: ``prefix-000001`` and so on."""
    digits = max(6, len(str(count)))
    return {f"{prefix}-{number:0{digits}d}": settings for number in range(1, count + 1)}


def add_clients(
    url: str,
    clients: Mapping[str, Mapping[str, Any]],
    save_keys: Callable[[Mapping[str, str]], None] = lambda _: None,
) -> dict[str, str]:
    """Make keys for many new clients of a database, all or none.

    Args:
        url: Of the database; a key file is for few.
        clients: Settings of each, by name, as for :func:`add_client`.
        save_keys: Called with the keys before they become valid; if it fails, none of them does.

    Returns:
        The keys, by the names of their clients.
    """
    if not is_database_url(url):
        raise ArgumentError(
            f"many clients at once need a database, got the file {url!r:.80}; name one as"
            " sqlite:////folder/keys.db or postgresql://host/name."
        )
    keys = {name: new_key() for name in clients}
    entries = {
        name: {"hash": hash_key(keys[name])}
        | {key: value for key, value in settings.items() if value is not None}
        for name, settings in clients.items()
    }
    try:
        with _change(url) as (database, version):
            _check_clients(_document(url), entries, database.teams())
            database.add(entries.items(), version)
            save_keys(keys)
    except ClientExistsError as error:
        # Postgres answers no further query in a transaction that has failed.
        with contextlib.closing(KeyDatabase(url)) as database:
            taken = database.first_taken(list(entries))
        raise ClientExistsError(
            f"each client needs a name of its own, got {taken!r}, which the database has already;"
            " choose another name."
        ) from error
    return keys


def create_clients(url: str, body: bytes) -> dict[str, str]:
    """Make keys for the new clients of a request's body, all or none.

    Args:
        url: Of the database.
        body: JSON of a client, its name among its settings, or of a list of clients.

    Returns:
        The keys, by the names of their clients.
    """
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise ArgumentError("the body must be JSON in UTF-8; see /openapi.json.") from None
    listed_clients = given if isinstance(given, list) else [given]
    if not 1 <= len(listed_clients) <= _MOST_NEW_CLIENTS:
        raise ArgumentError(
            f"a request must have 1 to {_MOST_NEW_CLIENTS:,} clients, got {len(listed_clients):,};"
            " send several requests."
        )
    clients: dict[str, dict[str, Any]] = {}
    for settings in listed_clients:
        if not isinstance(settings, dict):
            raise ArgumentError("a client must be a JSON object with a name; see /openapi.json.")
        name = validate_name(settings.pop("name", None))
        if "hash" in settings:
            raise ArgumentError(
                f"{name}: the gateway makes the key of a new client, got a hash; leave it out, or"
                " run 'mildroute keys import' for keys that there are."
            )
        if name in clients:
            raise ArgumentError(f"each client must be there once, got {name!r} twice.")
        clients[name] = settings
    return add_clients(url, clients)


def _main() -> None:
    """Answer a request for new keys: its body comes in, a head and the response's body go out.

    Gateways run it beside themselves, so that no request of a client waits. Before the body comes
    the URL of the database: all users can read arguments, and it names a host and its user.
    """
    run_behind_gateway()
    head: dict[str, Any] = {}
    response = b""
    try:
        url = sys.stdin.buffer.readline().decode().rstrip("\n")
        keys = create_clients(url, sys.stdin.buffer.read())
        names = list(keys)
        head = {"status": 200, "clients": len(names), "first": names[0], "last": names[-1]}
        data = [{"name": name, "key": key} for name, key in keys.items()]
        response = json.dumps({"object": "list", "data": data}).encode()
    except ClientExistsError as error:
        head = {"status": 409, "message": str(error)}
    except DatabaseError as error:
        head = {"status": 503, "message": str(error), "retry_after": 5}
    except ArgumentError as error:
        head = {"status": 400, "message": str(error)}
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + response)


def import_clients(path: str | Path, url: str) -> int:
    """Copy the clients and teams of a key file to a database, all or none; their keys stay valid.

    Returns:
        Number of clients.
    """
    entries, teams = _read_entries(path)
    with _change(url) as (database, version):
        for name, limits in teams.items():
            database.put_team(name, limits or {}, version)
        database.add(entries.items(), version)
    return len(entries)


def put_team(url: str, name: str, **limits: Any) -> None:
    """Add a team to a database, or give it other limits; none counts as left out."""
    given = {key: value for key, value in limits.items() if value is not None}
    if not is_database_url(url):
        raise ArgumentError(
            f"teams of a key file are written below its key 'teams', got the file {url!r:.80};"
            " edit it."
        )
    _check_teams(_document(url), {name: given})
    with _change(url) as (database, version):
        database.put_team(name, given, version)


def _with_entry(path: Path, name: str, line: str) -> str:
    """The file with this line in place of the client's entry, or at its end."""
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


def _check_written(
    beside: Path, path: Path, entries: dict[str, Any], teams: dict[str, Any]
) -> None:
    """Refuse a file that does not say what it should, with the reason."""
    try:
        written = _read_entries(beside)
        KeyStore.read(beside)
    except ArgumentError as error:
        message = str(error).replace(beside.name, path.name)
        if "not valid YAML" not in message:
            raise ArgumentError(message) from None
        written = {}, {}
    if written != (entries, teams):
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


# Paths that need the admin key.


class AdminAuth:
    """Checks the admin key, which is none of the clients'."""

    def __init__(self, secret: Secret) -> None:
        # Digests have one length, so that not even the length of the key can be measured.
        self._wanted = hashlib.sha256(secret.bearer()).digest()

    def check(self, request: Request) -> None:
        """An APIError if the request does not have it."""
        sent = hashlib.sha256(request.header(b"authorization") or b"").digest()
        if not hmac.compare_digest(sent, self._wanted):
            raise APIError(401, "the admin key is needed, as 'Authorization: Bearer ...'.")


if __name__ == "__main__":
    _main()
