"""The clients of a database as a gateway knows them: a snapshot, and the changes since."""

from __future__ import annotations

import hmac
import json
import logging
import math
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute._files import file_lock
from mildroute.exceptions import MildrouteError
from mildroute.serving.auth import snapshot
from mildroute.serving.auth.database import (
    NO_DIGEST,
    PREFIX,
    ClientRow,
    DatabaseError,
    KeyDatabase,
)
from mildroute.serving.auth.keys import APIClient, ClientTeam, KeyStore, client_from_settings
from mildroute.serving.auth.snapshot import (
    SUFFIX,
    KeySnapshot,
    build_snapshot,
    newest_snapshot,
    snapshot_folder,
)

__all__ = ["DatabaseKeyStore"]


_LOG = logging.getLogger(__name__)

# Changes that are held beside the snapshot; beyond them a new one is made.
_MOST_CHANGES = 10_000
# Changes of one poll that are read at once. Of more, only clients that were known are read (one of
# them may have been revoked), and new ones come with the next snapshot.
_MOST_READ = 20_000
# Seconds after which changes become a part of a snapshot, however few: a gateway that starts while
# its database is away knows the snapshot alone.
_SNAPSHOT_SECONDS = 600.0
# Clients that are kept decoded.
_DECODED = 10_000
# Seconds between two attempts to make a snapshot: one may fail, on a disk that is full.
_BUILD_INTERVAL = 5.0
# Seconds to wait for the snapshot that another process makes, and for a poll to end.
_BUILD_TIMEOUT = 300.0
_POLL_TIMEOUT = 10.0


@dataclass(frozen=True)
class _View:
    """What is known at one moment; replaced as a whole.

    Args:
        version: Up to which all changes are known.
        changed: Clients that have changed since the snapshot, by name.
        digests: Digests of their keys and their names, by the first bytes.
        new_clients: How many of them the snapshot does not have.
        decoded: Clients that were asked for lately, by name or by their row in the snapshot.
    """

    snapshot: KeySnapshot
    version: int
    teams: Mapping[str, ClientTeam]
    changed: Mapping[str, ClientRow] = field(default_factory=dict)
    digests: Mapping[bytes, tuple[bytes, str]] = field(default_factory=dict)
    new_clients: int = 0
    decoded: dict[int | str, APIClient] = field(default_factory=dict)


class _Members(Collection[str]):
    """Names of the clients of a team, found when they are asked for."""

    def __init__(self, store: DatabaseKeyStore, team: str) -> None:
        self._store = store
        self._team = team

    def __iter__(self) -> Iterator[str]:
        view = self._store.view
        for name in view.snapshot.members(self._team):
            if name not in view.changed:
                yield name
        for name, row in view.changed.items():
            if json.loads(row.settings).get("team") == self._team:
                yield name

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == one for one in self)


class DatabaseKeyStore(KeyStore):
    """All clients of a database; a thread of its own follows their changes.

    No request waits for the database. If it is away, the gateway continues with what it knows.

    Args:
        url: Of the database.
        interval: Seconds between two looks at the database.
        cache: Folder of snapshots; one in the user's cache by default.
    """

    def __init__(self, url: str, *, interval: float = 2.0, cache: Path | None = None) -> None:
        super().__init__(())
        self._url = url
        self._interval = interval
        self._folder = snapshot_folder(cache, url)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._builder: subprocess.Popen[bytes] | None = None
        self._build_after = -math.inf
        self._database: KeyDatabase | None = None
        self._checked = -math.inf
        self._snapshot_at = time.monotonic()
        self._is_away = False
        self._wants_snapshot = False
        self.view = self._first_view()

    def __len__(self) -> int:
        """Clients that there are."""
        return len(self.view.snapshot) + self.view.new_clients

    def __repr__(self) -> str:
        """How many there are; no name of them."""
        return f"KeyStore({len(self):,} clients of {self._url})"

    @property
    def age(self) -> float:
        """Seconds since it was known to be what the database holds."""
        return time.monotonic() - self._checked

    def start(self) -> None:
        """Follow the changes of the database in a thread."""
        self._stopped = threading.Event()
        threading.Thread(
            target=self._follow, args=(self._stopped,), name="keys", daemon=True
        ).start()

    def stop(self) -> None:
        """Follow no more; nothing is waited for, least of all a database that hangs."""
        self._stopped.set()

    def reread(self, path: str | Path) -> None:  # noqa: ARG002 - the database stays the same
        """Look at the database now; a DatabaseError if it is away."""
        self.refresh()

    def refresh(self) -> None:
        """Take what has changed in the database."""
        if not self._lock.acquire(timeout=_POLL_TIMEOUT):
            raise DatabaseError(f"the database {self._url} does not answer; the keys stay.")
        try:
            database = self._connected()
            name, version = database.state()
            view = self.view
            if name != view.snapshot.database or version < view.version:
                # Another database, or a backup, was put in its place.
                self._set_snapshot(database, self._fresh_snapshot(database))
            elif version > view.version:
                self.view = self._with_changes(database, view)
            self._renew_snapshot(database)
            self._checked = time.monotonic()
        except BaseException:
            self._disconnect()
            raise
        finally:
            self._lock.release()

    def _find_digest(self, digest: bytes) -> APIClient | None:
        view = self.view
        known, name = view.digests.get(digest[:PREFIX], (NO_DIGEST, None))
        if hmac.compare_digest(known, digest) and name is not None:
            return _client(view, name)
        row = view.snapshot.find(digest)
        return None if row is None else _client(view, row)

    def _follow(self, stopped: threading.Event) -> None:
        while not stopped.wait(self._interval):
            try:
                self.refresh()
            except MildrouteError as error:
                if not self._is_away:
                    _LOG.warning("the keys stay as they are until the database is back: %s", error)
                self._is_away = True
            except Exception:  # noqa: BLE001
                # The thread must not end with one poll: no revocation would be seen again.
                _LOG.exception("the keys could not be read")
            else:
                if self._is_away:
                    _LOG.info("the database of the keys is back; clients: %d", len(self))
                self._is_away = False
        with self._lock:
            self._disconnect()

    def _first_view(self) -> _View:
        try:
            database = self._connected()
            name, version = database.state()
            snapshot = newest_snapshot(self._folder)
            if (
                snapshot is None
                or snapshot.database != name
                or snapshot.version > version
                or database.has_more_changes(snapshot.version, _MOST_READ)
            ):
                snapshot = self._fresh_snapshot(database)
            self._set_snapshot(database, snapshot)
            self._checked = time.monotonic()
        except DatabaseError as error:
            snapshot = newest_snapshot(self._folder)
            if snapshot is None:
                raise DatabaseError(
                    f"a gateway needs its keys to start, got none: {error}"
                ) from error
            _LOG.warning("the keys are those of a snapshot until the database is back: %s", error)
            self._is_away = True
            self.view = _View(snapshot, snapshot.version, self._teams(snapshot.teams))
        finally:
            self._disconnect()  # a connection does not outlive a fork
        return self.view

    def _fresh_snapshot(self, database: KeyDatabase) -> KeySnapshot:
        """One that this process makes, or that another one has made meanwhile."""
        with file_lock(self._folder / "lock", _BUILD_TIMEOUT, create=True):
            name, version = database.state()
            found = newest_snapshot(self._folder)
            if found is None or (found.database, found.version) != (name, version):
                found = KeySnapshot(build_snapshot(database, self._folder))
            return found

    def _set_snapshot(self, database: KeyDatabase, snapshot: KeySnapshot) -> None:
        self._wants_snapshot = False
        # Never without the changes since: a key that was revoked would be valid for a moment.
        self.view = self._with_changes(database, _View(snapshot, snapshot.version, {}))
        self._snapshot_at = time.monotonic()

    def _with_changes(self, database: KeyDatabase, old: _View) -> _View:
        """A view with all that has changed since."""
        with database.transaction(write=False):
            _, version = database.state()
            teams = self._teams(database.teams())
            if database.has_more_changes(old.version, _MOST_READ):
                rows = database.changed_clients(old.version)
                version = old.version
                self._wants_snapshot = True
            else:
                rows = database.clients(old.version)
            changed = {**old.changed, **{row.name: row for row in rows}}
        digests = {
            digest[:PREFIX]: (digest, row.name)
            for row in changed.values()
            for digest in row.digests
        }
        new = sum(row.created > old.snapshot.version for row in changed.values())
        return _View(old.snapshot, version, teams, changed, digests, new)

    def _renew_snapshot(self, database: KeyDatabase) -> None:
        """Begin to make a new snapshot if it is time, or take one that is there."""
        if self._builder is not None and self._builder.poll() is not None:
            self._builder = None
        view = self.view
        is_old = time.monotonic() - self._snapshot_at > _SNAPSHOT_SECONDS
        if not (
            self._wants_snapshot
            or len(view.changed) > _MOST_CHANGES
            or (is_old and view.version > view.snapshot.version)
        ):
            return
        newest = max((path.stem for path in self._folder.glob(f"*{SUFFIX}")), default="0")
        if int(newest) > view.snapshot.version:
            found = newest_snapshot(self._folder)
            if (
                found is not None
                and found.database == view.snapshot.database
                and found.version > view.snapshot.version
            ):
                self._set_snapshot(database, found)
        elif self._builder is None and time.monotonic() >= self._build_after:
            self._build_after = time.monotonic() + _BUILD_INTERVAL
            # A process of its own: to make one takes seconds of this one's interpreter lock.
            command = [sys.executable, "-m", snapshot.__name__, str(self._folder)]
            self._builder = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603
            with self._builder.stdin as given:  # type: ignore[union-attr]
                given.write(f"{self._url}\n".encode())

    def _teams(self, limits: Mapping[str, Mapping[str, Any]]) -> dict[str, ClientTeam]:
        return {
            name: ClientTeam(name, **own, members=_Members(self, name))
            for name, own in limits.items()
        }

    def _connected(self) -> KeyDatabase:
        if self._database is None:
            self._database = KeyDatabase(self._url)
        return self._database

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _client(view: _View, place: int | str) -> APIClient | None:
    """A client by its row in the snapshot, or by its name if it has changed since."""
    client = view.decoded.pop(place, None)
    if client is None:
        if isinstance(place, str):
            name, settings = place, view.changed[place].settings.encode()
        else:
            name, settings = view.snapshot.record(place)
            if name in view.changed:  # its key was replaced
                return None
        client = client_from_settings(name, json.loads(settings), view.teams)
        if len(view.decoded) >= _DECODED:
            del view.decoded[next(iter(view.decoded))]
    view.decoded[place] = client  # the latest is the last to be dropped
    return client
