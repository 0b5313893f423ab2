"""The snapshot of all client keys of a database: a file that is mapped into memory.

``python -m mildroute.serving.auth.snapshot URL FOLDER`` makes one, with few imports: gateways run
it beside themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import mmap
import os
import stat
import sys
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mildroute._files import atomic_write, cache_folder, lock_now
from mildroute.exceptions import ArgumentError
from mildroute.serving.auth.database import (
    NO_DIGEST,
    PREFIX,
    ClientRow,
    KeyDatabase,
    run_behind_gateway,
)

__all__ = ["SUFFIX", "KeySnapshot", "build_snapshot", "newest_snapshot", "snapshot_folder"]


_LOG = logging.getLogger(__name__)


# The file: a head of JSON and five arrays, mapped and not read, so that all processes of a machine
# share its pages. A million keys as Python objects take about 1 GB in each process and seconds to
# make; benchmarks/service/million_keys.py measures the file.


_MAGIC = b"mildroute keys 1\n"
SUFFIX = ".keys"
_DIGEST = 32
# Type of each array, in their order; those of the widest items first, for alignment.
_ARRAYS: Mapping[str, Literal["Q", "I", "i", "B"]] = {
    "prefixes": "Q",
    "offsets": "Q",
    "owners": "I",
    "teams": "i",
    "digests": "B",
}


class KeySnapshot:
    """All clients of a database at one version, by the digests of their keys.

    Attributes:
        database: Name of the database.
        version: Of its keys.
        teams: Limits of each team, by name.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            if file.readline() != _MAGIC:
                raise ArgumentError(f"{path} must be a snapshot of keys, got another file.")
            head = json.loads(file.readline())
            start = -(-file.tell() // 8) * 8
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        # The system reads it ahead, so that no request waits for the disk.
        self._mapped.madvise(mmap.MADV_WILLNEED)
        self.database: str = head["database"]
        self.version: int = head["version"]
        self.teams: dict[str, dict[str, Any]] = head["teams"]
        self._team_names = list(self.teams)
        views = []
        content = memoryview(self._mapped)
        for kind, size in zip(_ARRAYS.values(), head["sizes"], strict=True):
            views.append(content[start : start + size].cast(kind))
            start += size
        self._prefixes, self._offsets, self._owners, self._teams, self._digests = views
        self._records = content[start:]
        if start + self._offsets[-1] != len(content):
            raise ArgumentError(f"{path} must be whole, got a part of it; remove it.")

    def __len__(self) -> int:
        """Clients that it holds."""
        return len(self._teams)

    def find(self, digest: bytes) -> int | None:
        """Row of the client with this digest of its key, or none."""
        prefix = int.from_bytes(digest[:PREFIX], "big")
        place = bisect_left(self._prefixes, prefix)
        known: Any = NO_DIGEST
        row = None
        if place < len(self._prefixes) and self._prefixes[place] == prefix:
            known = self._digests[place * _DIGEST : (place + 1) * _DIGEST]
            row = self._owners[place]
        return row if hmac.compare_digest(known, digest) else None

    def record(self, row: int) -> tuple[str, bytes]:
        """Name of a client, and the JSON of its settings."""
        found = bytes(self._records[self._offsets[row] : self._offsets[row + 1]])
        end = found.index(b"{")
        return found[:end].decode("ascii"), found[end:]

    def rows(self) -> Iterator[ClientRow]:
        """Its clients; versions are not kept."""
        by_key = np.frombuffer(self._digests, np.uint8).reshape(-1, _DIGEST)
        owners = np.frombuffer(self._owners, np.uint32)
        order = np.argsort(owners, kind="stable")
        digests = by_key[order].tobytes()
        ends = np.searchsorted(owners[order], np.arange(1, len(self) + 1)) * _DIGEST
        start = 0
        for row, end in enumerate(ends.tolist()):
            name, settings = self.record(row)
            latest, older = digests[start : start + _DIGEST], digests[start + _DIGEST : end]
            yield ClientRow(name, latest, older or None, settings.decode(), 0, 0)
            start = end

    def members(self, team: str) -> Iterator[str]:
        """Names of the clients of a team."""
        if team in self.teams:
            place = self._team_names.index(team)
            for row in np.flatnonzero(np.frombuffer(self._teams, np.int32) == place):
                yield self.record(int(row))[0]


def build_snapshot(database: KeyDatabase, folder: Path) -> Path:
    """Write the file of all clients of a database; older files are removed.

    Only what has changed since the latest file is read from the database: a hundred gateways that
    read a million rows each would be felt there.
    """
    with database.transaction(write=False):
        name, version = database.state()
        teams = database.teams()
        before = newest_snapshot(folder)
        if before is None or before.database != name or before.version > version:
            clients = database.clients()
        else:
            clients = _merged(before, {row.name: row for row in database.clients(before.version)})
        arrays, records = _gathered(clients, list(teams))
    sizes = [len(part) for part in arrays]
    head = {"database": name, "version": version, "teams": teams, "sizes": sizes}
    start = _MAGIC + json.dumps(head).encode() + b"\n"
    path = folder / f"{version:020d}{SUFFIX}"
    with atomic_write(path) as beside, os.fdopen(_private(beside), "wb") as file:
        file.write(start + bytes(-len(start) % 8))
        file.writelines(arrays)
        file.write(records)
    for other in folder.glob(f"*{SUFFIX}"):
        if other != path:
            other.unlink(missing_ok=True)  # those that have mapped it keep it
    return path


def _merged(before: KeySnapshot, changed: Mapping[str, ClientRow]) -> Iterator[ClientRow]:
    yield from (row for row in before.rows() if row.name not in changed)
    yield from changed.values()


def _private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)


def _gathered(clients: Iterable[ClientRow], teams: list[str]) -> tuple[list[bytes], bytearray]:
    """The arrays in their order, and the records."""
    places: dict[str | None, int] = {name: place for place, name in enumerate(teams)}
    digests, records = bytearray(), bytearray()
    owners, teams_of, offsets = array("I"), array("i"), array("Q", [0])
    for row, client in enumerate(clients):
        records += client.name.encode("ascii")
        records += client.settings.encode()
        offsets.append(len(records))
        team = json.loads(client.settings).get("team") if '"team"' in client.settings else None
        teams_of.append(places.get(team, -1))
        for digest in client.digests:
            digests += digest
            owners.append(row)
    by_key = np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST)
    prefixes = by_key[:, :PREFIX].copy().view(">u8")[:, 0].astype(np.uint64)
    order = np.argsort(prefixes, kind="stable")
    sorted_owners = np.frombuffer(owners, np.uint32)[order]
    parts = (
        prefixes[order].tobytes(),
        offsets.tobytes(),
        sorted_owners.tobytes(),
        teams_of.tobytes(),
        by_key[order].tobytes(),
    )
    return list(parts), records


def newest_snapshot(folder: Path) -> KeySnapshot | None:
    """The latest snapshot of a folder that is whole, or none."""
    for path in sorted(folder.glob(f"*{SUFFIX}"), reverse=True):
        try:
            return KeySnapshot(path)
        except FileNotFoundError:  # a newer one is there
            continue
        except (ArgumentError, ValueError, KeyError, OSError) as error:
            _LOG.warning("a snapshot of keys is left out: %s", error)
    return None


def snapshot_folder(cache: Path | None, url: str) -> Path:
    """Where the snapshots of a database lie; no other user may write there."""
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    folder = (cache_folder("keys") if cache is None else cache) / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ArgumentError(
            f"snapshots of the keys are written to {folder}, got: {error.strerror}; set keys_cache"
            " to a folder of the gateway's own."
        ) from None
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise ArgumentError(
            f"{folder} must be the gateway's own, for its files say which keys are valid, got one"
            " that others may write; set keys_cache to another folder."
        )
    return folder


def _main(folder: str) -> None:
    """Make a snapshot, unless another process does; the URL of the database comes in."""
    # Not as an argument: all users can read those, and it names a host and its user.
    url = sys.stdin.readline().rstrip("\n")
    file = os.open(Path(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
    if lock_now(file) is False:
        return
    run_behind_gateway()
    with contextlib.closing(KeyDatabase(url)) as database:
        build_snapshot(database, Path(folder))


if __name__ == "__main__":
    _main(*sys.argv[1:])
