"""A folder of vector shards: one whole version in the open, the next one out of sight until it is whole too.

Shards are named after their rows, their recipe and their content. Those of a run lie under ``_unfinished``, where no reader of ours looks,
and are moved up when all are there; before that, those of an older version are removed. So a kill at any time leaves whole shards of
one version. ``_manifest.json`` is there only while the version beside it is whole.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from mildroute.costs.sources import filesystem_of, one_line
from mildroute.errors import TableError

__all__ = ["ShardFolder", "shard_name", "shard_stem"]

_MANIFEST, _UNFINISHED, _SOURCE, _LOCK = "_manifest.json", "_unfinished", "_source", "_lock"
_NAME = re.compile(r"rows-\d{12}-\d{12}-[0-9a-f]{12}-[0-9a-f]{24}\.parquet")


def shard_name(start: int, stop: int, recipe: str, content: str) -> str:
    """Name of a shard; names in order are rows in order.

    Args:
        start: First row.
        stop: First row after it.
        recipe: Digest of how its vectors are made.
        content: Digest of its rows.

    Returns:
        The name.

    Example:
        >>> shard_name(0, 50_000, "ab" * 16, "cd" * 16)
        'rows-000000000000-000000050000-abababababab-cdcdcdcdcdcdcdcdcdcdcdcd.parquet'
    """
    return f"{shard_stem(start, stop, recipe)}-{content[:24]}.parquet"


def shard_stem(start: int, stop: int, recipe: str) -> str:
    """The name of a shard without its content.

    Example:
        >>> shard_stem(0, 50_000, "ab" * 16)
        'rows-000000000000-000000050000-abababababab'
    """
    return f"rows-{start:012d}-{stop:012d}-{recipe[:12]}"


@dataclass(frozen=True)
class ShardFolder:
    """Where shards lie; it can be sent to other processes.

    Args:
        uri: A path, or a URI of pyarrow or fsspec.

    Example:
        >>> import tempfile
        >>> folder = ShardFolder(tempfile.mkdtemp())
        >>> with folder.taken():
        ...     folder.names()
        set()
    """

    uri: str

    @cached_property
    def _place(self) -> tuple[Any, str]:
        if "://" in self.uri:
            system, root, _ = filesystem_of(self.uri)
            return system, root.rstrip("/")
        return pafs.LocalFileSystem(), str(Path(self.uri).expanduser().absolute())

    def __getstate__(self) -> dict[str, str]:
        """Another process finds its own way to the folder."""
        return {"uri": self.uri if "://" in self.uri else self._place[1]}

    @property
    def system(self) -> Any:
        """The file system."""
        return self._place[0]

    @property
    def root(self) -> str:
        """The folder in its file system."""
        return self._place[1]

    @property
    def source(self) -> str:
        """Where rows of text files wait as Parquet."""
        return f"{self.root}/{_SOURCE}"

    @contextmanager
    def taken(self) -> Iterator[None]:
        """The folder for one process alone, where its file system knows locks; refused where it holds other things than vectors."""
        try:
            others = sorted(name for name in self._listed("") if not (_NAME.fullmatch(name) or name.startswith("_")))
            if others:
                raise TableError(f"vectors must go to a folder of their own, got {self.uri!r} with {others[0]!r} in it; choose a new one.")
            self.system.create_dir(f"{self.root}/{_UNFINISHED}", recursive=True)
        except (OSError, pa.ArrowException) as error:
            raise TableError(f"vectors must go to a folder that can be written, got {self.uri!r}: {one_line(error)}.") from error
        with self._locked():
            yield

    def names(self) -> set[str]:
        """Names of all shards that are written, in the open or not."""
        return {name for name in {*self._listed(""), *self._listed(_UNFINISHED)} if _NAME.fullmatch(name)}

    def has(self, name: str, rows: int) -> bool:
        """Whether a shard is there with all its rows."""
        return any(self._rows(path) == rows for path in (f"{self.root}/{name}", f"{self.root}/{_UNFINISHED}/{name}"))

    def write(self, fill: Callable[[Any], str]) -> str:
        """Write a shard out of sight.

        Args:
            fill: Writes to a stream and returns the name of what it wrote.

        Returns:
            The name, under which there is the whole shard.
        """
        partial = f"{_UNFINISHED}/{secrets.token_hex(8)}.partial"
        try:
            with self.system.open_output_stream(f"{self.root}/{partial}") as stream:
                name = fill(stream)
            self._move(partial, f"{_UNFINISHED}/{name}")
        except OSError as error:
            raise TableError(f"a shard cannot be written to {self.uri!r}: {one_line(error)}.") from error
        return name

    def publish(self, names: Sequence[str], manifest: dict[str, Any]) -> None:
        """Bring these shards into the open, and no others; a manifest says what they are.

        Args:
            names: All shards of the version.
            manifest: What to say, for JSON.
        """
        there = {name for name in self._listed("") if _NAME.fullmatch(name)}
        fresh = set(names).intersection(self._listed(_UNFINISHED))
        if fresh or there != set(names) or self.manifest() != manifest:
            self._delete(_MANIFEST)
            for name in sorted(there - set(names)):
                self._delete(name)
            for name in sorted(fresh):
                self._move(f"{_UNFINISHED}/{name}", name)
            self._write_manifest(manifest)
        for name in (_UNFINISHED, _SOURCE):
            if self._kind(name) == pafs.FileType.Directory:
                self.system.delete_dir(f"{self.root}/{name}")

    def manifest(self) -> dict[str, Any] | None:
        """What the manifest says, or none where no whole version is there."""
        if self._kind(_MANIFEST) != pafs.FileType.File:
            return None
        with self.system.open_input_stream(f"{self.root}/{_MANIFEST}") as stream:
            try:
                said = json.loads(stream.read())
            except ValueError:
                return None
        return said if isinstance(said, dict) else None

    def _write_manifest(self, manifest: dict[str, Any]) -> None:
        partial = f"{_UNFINISHED}/{_MANIFEST}.partial"
        with self.system.open_output_stream(f"{self.root}/{partial}") as stream:
            stream.write(json.dumps(manifest, indent=2).encode())
        self._move(partial, _MANIFEST)

    def _listed(self, inner: str) -> list[str]:
        selector = pafs.FileSelector(f"{self.root}/{inner}".rstrip("/"), allow_not_found=True)
        return [info.base_name for info in self.system.get_file_info(selector)]

    def _kind(self, name: str) -> Any:
        return self.system.get_file_info(f"{self.root}/{name}").type

    def _move(self, name: str, target: str) -> None:
        self.system.move(f"{self.root}/{name}", f"{self.root}/{target}")

    def _delete(self, name: str) -> None:
        if self._kind(name) == pafs.FileType.File:
            self.system.delete_file(f"{self.root}/{name}")

    def _rows(self, path: str) -> int | None:
        """Rows of a shard by its last bytes, or none where it is not there or not whole."""
        if self.system.get_file_info(path).type != pafs.FileType.File:
            return None
        try:
            with self.system.open_input_file(path) as stream:
                return int(pq.read_metadata(stream).num_rows)
        except (pa.ArrowException, OSError):
            return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not isinstance(self.system, pafs.LocalFileSystem):
            yield
            return
        handle = os.open(f"{self.root}/{_LOCK}", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise TableError(f"one process at a time may write to {self.uri!r}; another one does, wait for it or stop it.") from None
        try:
            yield
        finally:
            os.close(handle)
