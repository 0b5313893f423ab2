"""Resolution of a source (a file, a folder, a pattern, a list, a URL) to the files of a table."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow.fs as pafs

from mildroute._files import one_line, open_filesystem
from mildroute.exceptions import TableError

__all__ = [
    "SUFFIXES",
    "SourceFile",
    "is_source",
    "resolve_files",
]


SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".xlsx": "xlsx",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_KNOWN = ".parquet, .csv, .tsv, .xlsx, .jsonl, .ndjson or .json"


@dataclass(frozen=True)
class SourceFile:
    """One file of a table.

    Attributes:
        kind: 'parquet', 'csv' (also with tabs), 'xlsx' or 'json'.
    """

    path: str
    shown: str
    kind: str
    filesystem: Any

    def open(self) -> Any:
        """Open the file for random-access reading; errors become one line."""
        try:
            return self.filesystem.open_input_file(self.path)
        except OSError as error:
            raise TableError(
                f"{self.shown!r} cannot be opened: {one_line(error)}; check the path and its"
                " permissions."
            ) from error


def is_source(source: object) -> bool:
    """Return whether this names files rather than being a table in memory."""
    if isinstance(source, (list, tuple)):
        return bool(source) and all(is_source(item) for item in source)
    return isinstance(source, (str, os.PathLike))


def resolve_files(source: object) -> list[SourceFile]:
    """Return the files of a source, in the order of their rows.

    Args:
        source: A path, a folder, a pattern with ``*``, a URL, or a list of them. Shards of a folder
            are read in the order of their names.

    Returns:
        At least one file; all files have the same kind.
    """
    if not is_source(source):
        raise TableError(
            f"a source must be a path, a URL or a list of them, got {type(source).__name__}; see"
            " CostTable.from_data for tables in memory."
        )
    items: Iterable[Any] = source if isinstance(source, (list, tuple)) else [source]
    files = [file for item in items for file in _files_of_one(os.fspath(item))]
    kinds = sorted({file.kind for file in files})
    if len(kinds) > 1:
        raise TableError(
            f"the shards of a table must have one format, got {' and '.join(kinds)}; convert some"
            " of them first."
        )
    return files


def _files_of_one(name: str) -> list[SourceFile]:
    if not name or "\0" in name:
        raise TableError(f"a path must not be empty nor hold zero bytes, got {name!r}.")
    if "://" in name and not name.startswith("file://"):
        return _remote(name)
    path = Path(name.removeprefix("file://")).expanduser()
    system = pafs.LocalFileSystem(use_mmap=True)
    try:
        paths = _local(path)
    except OSError as error:
        raise TableError(
            f"{name!r} cannot be read: {one_line(error)}; check the path and its permissions."
        ) from error
    return [SourceFile(str(file), str(file), _kind(str(file)), system) for file in paths]


def _local(path: Path) -> list[Path]:
    if path.is_dir():
        return _shards(
            str(path),
            sorted(
                file
                for file in path.rglob("*")
                if file.is_file() and _counts(file.relative_to(path).parts)
            ),
        )
    if path.exists():
        return [path]
    paths = (
        sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
        if glob.has_magic(str(path))
        else []
    )
    if not paths:
        what = "matches no file" if glob.has_magic(str(path)) else "does not exist"
        raise TableError(f"{str(path)!r} {what}; check the path.")
    return [file for file in paths if file.is_file()]


def _counts(parts: Iterable[str]) -> bool:
    """Return whether a name is a shard; markers such as _SUCCESS and hidden files are not."""
    return not any(part.startswith((".", "_")) for part in parts)


def _shards(folder: str, files: list[Any]) -> list[Any]:
    shards = [file for file in files if PurePosixPath(str(file)).suffix.lower() in SUFFIXES]
    if not shards:
        raise TableError(
            f"folder {folder!r} holds no shards: files that end with {_KNOWN}; check the path."
        )
    return shards


def _kind(name: str) -> str:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in SUFFIXES:
        raise TableError(f"{name!r} has the unknown suffix {suffix!r}; a table ends with {_KNOWN}.")
    return SUFFIXES[suffix]


def _remote(url: str) -> list[SourceFile]:
    scheme = url.split("://", 1)[0]
    system, path, glob_files = open_filesystem(url)
    try:
        info = system.get_file_info(path)
        if glob.has_magic(path) and glob_files is not None:
            locations = sorted(glob_files(path))
        elif info.type == pafs.FileType.Directory:
            entries = system.get_file_info(pafs.FileSelector(path, recursive=True))
            names = sorted(entry.path for entry in entries if entry.type == pafs.FileType.File)
            locations = _shards(
                url,
                [
                    name
                    for name in names
                    if _counts(PurePosixPath(name.removeprefix(path).lstrip("/")).parts)
                ],
            )
        else:
            locations = [path] if info.type == pafs.FileType.File else []
    except OSError as error:
        raise TableError(
            f"{url!r} cannot be read: {one_line(error)}; check the address and its permissions."
        ) from error
    if not locations:
        raise TableError(f"{url!r} does not exist; check the address.")
    return [
        SourceFile(name, f"{scheme}://{name.lstrip('/')}", _kind(name), system)
        for name in locations
    ]
