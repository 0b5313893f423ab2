"""Client keys and teams in SQLite or Postgres, and the connection that the ledger shares."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.parse import parse_qs, urlsplit

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError

__all__ = [
    "NO_DIGEST",
    "PREFIX",
    "ClientExistsError",
    "ClientRow",
    "Database",
    "DatabaseError",
    "KeyDatabase",
    "hashes_of",
    "is_database_url",
    "run_behind_gateway",
]


_SQLITE = "sqlite:///"
_POSTGRES = ("postgresql://", "postgres://")
# Seconds to wait for a connection, and for another writer of an SQLite file.
_CONNECT_TIMEOUT = 5
_BUSY_TIMEOUT = 30.0


class DatabaseError(ArgumentError):
    """A database cannot be reached, or does not take a statement."""


class ClientExistsError(ArgumentError):
    """A new client has the name of one that there is."""


def run_behind_gateway() -> None:
    """Let this process have what gateways leave of the processor."""
    # Behind the gateway, also if that has a higher priority.
    os.nice(5)
    if hasattr(os, "SCHED_BATCH"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def is_database_url(source: str | Path) -> bool:
    """Whether keys are in a database and not in a file."""
    return str(source).startswith((_SQLITE, *_POSTGRES))


class Database:
    """A connection to SQLite or Postgres, used by one thread at a time.

    Statements are written with ``%s`` for values.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or ``postgresql://host/name``.
            It has no password: libpq reads ``PGPASSWORD`` and ``PGPASSFILE``.
        create: Whether tables are made if there are none, and a file of SQLite as well.
    """

    # Statements that make what is not there yet.
    tables: ClassVar[Sequence[str]] = ()

    def __init__(self, url: str, *, create: bool = False) -> None:
        self.url = url
        self.is_postgres = url.startswith(_POSTGRES)
        if not is_database_url(url):
            raise ArgumentError(
                f"a database must be named by its URL, got {url!r:.80}; write"
                " sqlite:////folder/keys.db or postgresql://host/name."
            )
        if self.is_postgres:
            _refuse_password(url)
            with needs_extra("psycopg", extra="fleet", user="a Postgres database"):
                import psycopg
            self._errors: tuple[type[Exception], ...] = (psycopg.Error,)
        else:
            self._errors = (sqlite3.Error,)
        with self._translated():
            self._connection = _postgres(url) if self.is_postgres else _sqlite(url, create)
        if create:
            try:
                self._create_tables(self.tables)
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """End the connection; what was not committed is undone."""
        with contextlib.suppress(*self._errors):
            self._connection.close()

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[None]:
        """A transaction that is committed at the end, or undone if anything is raised.

        One that does not write sees the database as it was at its first statement.
        """
        if self.is_postgres:
            begin = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        else:
            begin = "BEGIN IMMEDIATE" if write else "BEGIN"
        with self._translated():
            self._connection.execute(begin)
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(*self._errors):
                    self._connection.execute("ROLLBACK")
                raise

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        with self._translated():
            cursor = self._connection.execute(self._own(statement), values)
            return [] if cursor.description is None else cursor.fetchall()

    def stream(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Rows of a query one after the other; more of them than fit into memory."""
        with self._translated():
            if self.is_postgres:
                with self._connection.cursor() as cursor:
                    yield from cursor.stream(statement, values)
            else:
                yield from self._connection.execute(self._own(statement), values)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run a statement for each row, and return how many rows of the table it has changed."""
        with self._translated(), contextlib.closing(self._connection.cursor()) as cursor:
            cursor.executemany(self._own(statement), rows)
            return int(cursor.rowcount)

    def insert_all(self, insert: str, copy: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert many rows, by the one statement or, where that is faster, by the other."""
        if not self.is_postgres:
            self.execute_many(insert, rows)
            return
        with (
            self._translated(),
            self._connection.cursor() as cursor,
            cursor.copy(copy) as stream,
        ):
            for row in rows:
                stream.write_row(row)

    def _create_tables(self, statements: Sequence[str]) -> None:
        """Make the tables that are not there yet; ``BYTES`` and ``DOUBLE`` are types of either."""
        types = ("BYTEA", "DOUBLE PRECISION") if self.is_postgres else ("BLOB", "REAL")
        with self.transaction():
            if self.is_postgres:
                # Two sessions that make the same table at once fail even with IF NOT EXISTS.
                self.execute("SELECT pg_advisory_xact_lock(7366483)")
            for statement in statements:
                self.execute(statement.replace("BYTES", types[0]).replace("DOUBLE", types[1]))

    def _own(self, statement: str) -> str:
        return statement if self.is_postgres else statement.replace("%s", "?")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            reason = " ".join(str(error).split())
            raise DatabaseError(f"the database {self.url} says: {reason:.300}") from error


def _sqlite(url: str, create: bool) -> Any:
    path = Path(url.removeprefix(_SQLITE)).absolute()
    try:
        _prepare_file(path, create=create)
    except OSError as error:
        raise sqlite3.OperationalError(f"{path}: {error.strerror}; check the URL.") from None
    # A connection wanders between the threads of an executor, one at a time.
    found = sqlite3.connect(
        path, timeout=_BUSY_TIMEOUT, isolation_level=None, check_same_thread=False
    )
    if create:
        _use_write_ahead_log(found)
        # 64 MB in place of 2: hashes come in no order, so an insert meets any page of their index.
        found.execute("PRAGMA cache_size=-65536")
    return found


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Let readers and a writer not wait for each other; the file remembers it."""
    until = time.monotonic() + _BUSY_TIMEOUT
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait for another connection that does the same to a new file.
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                connection.close()
                raise
            time.sleep(0.01)
        else:
            return


def _prepare_file(path: Path, *, create: bool) -> None:
    """Make the file of a database if there is none; an OSError if it cannot be used."""
    if create:
        with contextlib.suppress(FileExistsError):
            # Only its owner may read a new file; the files that SQLite puts beside it follow.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    # A file that is there is never opened here: to close it again would drop the locks that this
    # process holds on it for SQLite. Then another process takes itself for the last one, deletes
    # the write-ahead log, and both continue with different databases.
    path.stat()
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _postgres(url: str) -> Any:
    import psycopg

    return psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=_CONNECT_TIMEOUT,
        application_name="mildroute",
        keepalives_idle=5,
        tcp_user_timeout=10_000,
    )


def _refuse_password(url: str) -> None:
    parts = urlsplit(url)
    if parts.password is not None or "password" in parse_qs(parts.query):
        raise ArgumentError(
            "the URL of a database must not hold a password (it is not shown); set PGPASSWORD, or"
            " name a file in PGPASSFILE."
        )


# The tables of keys. A version grows with every change: writers take it from one row, which they
# hold locked until they commit, so that versions become visible in their order. A sequence would
# not do: of two transactions the later number may be committed first, and a gateway that has seen
# it would never look for the other one.
_TABLES = (
    """CREATE TABLE IF NOT EXISTS mildroute_key_state (
        id INTEGER PRIMARY KEY CHECK (id = 1), name TEXT NOT NULL, version BIGINT NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS mildroute_clients (
        name TEXT PRIMARY KEY, digest BYTES NOT NULL UNIQUE, older_digest BYTES UNIQUE,
        settings TEXT NOT NULL, created BIGINT NOT NULL, version BIGINT NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS mildroute_clients_version ON mildroute_clients (version)",
    """CREATE TABLE IF NOT EXISTS mildroute_teams (
        name TEXT PRIMARY KEY, settings TEXT NOT NULL, version BIGINT NOT NULL)""",
)
_ROWS = "SELECT name, digest, older_digest, settings, created, version FROM mildroute_clients"


# A digest of no key.
NO_DIGEST = bytes(32)
# Bytes of a digest by which it is looked up.
PREFIX = 8
# SQLite takes up to 32,766 parameters.
_NAMES_PER_QUERY = 1_000


class ClientRow(NamedTuple):
    """A client as its table has it.

    Args:
        digest: SHA-256 of its latest key.
        older_digest: Of the key that is being replaced, or none.
        settings: JSON without the hashes.
        created: The version of the change that made it.
        version: The version of its latest change.
    """

    name: str
    digest: bytes
    older_digest: bytes | None
    settings: str
    created: int
    version: int

    @property
    def digests(self) -> list[bytes]:
        """Of all its keys, the latest first."""
        return [self.digest] if self.older_digest is None else [self.digest, self.older_digest]

    def entry(self) -> dict[str, Any]:
        """Its settings with the hashes, as a key file has them."""
        hashes = [f"sha256:{digest.hex()}" for digest in self.digests]
        return {"hash": hashes[0] if len(hashes) == 1 else hashes, **json.loads(self.settings)}


class KeyDatabase(Database):
    """Clients and teams in a database; settings are those of a key file, checked by the caller."""

    tables = _TABLES

    def _create_tables(self, statements: Sequence[str]) -> None:
        super()._create_tables(statements)
        self.execute(
            "INSERT INTO mildroute_key_state VALUES (1, %s, 0) ON CONFLICT DO NOTHING",
            secrets.token_hex(8),
        )

    def state(self) -> tuple[str, int]:
        """The database's own name, which tells it from others, and the version of its keys."""
        try:
            ((name, version),) = self.execute("SELECT name, version FROM mildroute_key_state")
        except DatabaseError as error:
            if "mildroute_key_state" not in str(error):
                raise
            raise DatabaseError(
                f"the database {self.url} has no table of keys; run 'mildroute keys new --file"
                f" {self.url}'."
            ) from error
        return name, version

    @contextmanager
    def change(self) -> Iterator[int]:
        """A transaction of the one writer; yields the version that its changes get."""
        with self.transaction():
            self.execute("UPDATE mildroute_key_state SET version = version + 1")
            yield self.state()[1]

    def client(self, name: str) -> ClientRow | None:
        """A client by its name, or none."""
        rows = self.execute(f"{_ROWS} WHERE name = %s", name)
        return ClientRow(*rows[0]) if rows else None

    def first_taken(self, names: Sequence[str]) -> str | None:
        """The first of these names that a client has, or none."""
        for start in range(0, len(names), _NAMES_PER_QUERY):
            part = names[start : start + _NAMES_PER_QUERY]
            marks = ", ".join(["%s"] * len(part))
            rows = self.execute(f"{_ROWS} WHERE name IN ({marks})", *part)
            taken = {ClientRow(*row).name for row in rows}
            if taken:
                return next(name for name in part if name in taken)
        return None

    def clients(self, since: int = -1) -> Iterator[ClientRow]:
        """Clients that have changed since a version."""
        return (ClientRow(*row) for row in self.stream(f"{_ROWS} WHERE version > %s", since))

    def page(self, after: str, limit: int) -> list[ClientRow]:
        """Clients by name, from the one after a name on."""
        query = f"{_ROWS} WHERE name > %s ORDER BY name LIMIT %s"
        return [ClientRow(*row) for row in self.execute(query, after, limit)]

    def changed_clients(self, since: int) -> Iterator[ClientRow]:
        """Of the clients that were there at a version, those that have changed since."""
        query = f"{_ROWS} WHERE version > %s AND created <= %s"
        return (ClientRow(*row) for row in self.stream(query, since, since))

    def has_more_changes(self, since: int, most: int) -> bool:
        """Whether more clients than this have changed since a version."""
        query = "SELECT 1 FROM mildroute_clients WHERE version > %s LIMIT 1 OFFSET %s"
        return bool(self.execute(query, since, most))

    def teams(self) -> dict[str, dict[str, Any]]:
        """Limits of all teams, by name."""
        rows = self.execute("SELECT name, settings FROM mildroute_teams ORDER BY name")
        return {name: json.loads(settings) for name, settings in rows}

    def add(self, entries: Iterable[tuple[str, Mapping[str, Any]]], version: int) -> None:
        """Insert clients, inside of :meth:`change`."""
        rows = (_row(name, settings, version) for name, settings in entries)
        try:
            self.insert_all(
                "INSERT INTO mildroute_clients VALUES (%s, %s, %s, %s, %s, %s)",
                "COPY mildroute_clients FROM STDIN",
                rows,
            )
        except DatabaseError as error:
            if type(error.__cause__).__name__ not in ("IntegrityError", "UniqueViolation"):
                raise
            raise ClientExistsError(
                "each client needs a name and a key of its own, got one that the database has"
                " already; choose other names."
            ) from error

    def replace(self, name: str, settings: Mapping[str, Any], version: int) -> None:
        """Change a client, inside of :meth:`change`."""
        row = _row(name, settings, version)
        self.execute(
            "UPDATE mildroute_clients SET digest = %s, older_digest = %s, settings = %s,"
            " version = %s WHERE name = %s",
            *(row.digest, row.older_digest, row.settings, version, name),
        )

    def put_team(self, name: str, limits: Mapping[str, Any], version: int) -> None:
        """Add or change a team, inside of :meth:`change`."""
        self.execute(
            "INSERT INTO mildroute_teams VALUES (%s, %s, %s) ON CONFLICT (name) DO UPDATE"
            " SET settings = excluded.settings, version = excluded.version",
            *(name, json.dumps(limits), version),
        )


def hashes_of(settings: Mapping[str, Any]) -> list[str]:
    """The hashes of an entry, the latest first."""
    written = settings["hash"]
    return written if isinstance(written, list) else [written]


def _row(name: str, settings: Mapping[str, Any], version: int) -> ClientRow:
    digests = [bytes.fromhex(one.removeprefix("sha256:")) for one in hashes_of(settings)]
    others = {key: value for key, value in settings.items() if key != "hash"}
    older = digests[1] if len(digests) > 1 else None
    document = json.dumps(others, separators=(",", ":"))
    return ClientRow(name, digests[0], older, document, version, version)
