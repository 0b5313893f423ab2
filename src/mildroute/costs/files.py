"""Locations of tables: paths, globs, URLs and shards; and how tables are written."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from mildroute._files import one_line, open_filesystem, open_location
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "SUFFIXES",
    "SourceFile",
    "is_source",
    "resolve_files",
    "write_table",
]


# Resolution of a source (a file, a folder of shards, a pattern, a list, a URL) to the files that
# hold a table.


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


# Tables as files: Parquet with the prices in the schema's metadata, CSV or JSON lines, one file or
# a folder of shards.


_ROW_GROUP = 131_072
_JSON_RUN = 10_000


def write_table(table: pa.Table, target: str | Path, *, shards: int = 1) -> Path | str:
    r"""Write a table.

    The suffix sets the format; a target without a suffix becomes a folder of Parquet shards.

    Args:
        table: Canonical columns, prices in the metadata of the schema.
        target: A path or a URL.
        shards: Number of files in the folder.
    """
    if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
        raise ArgumentError(f"shards must be a whole number of at least 1, got {shards!r}.")
    system, path = open_location(target)
    suffix = PurePosixPath(path).suffix.lower()
    if suffix == ".xlsx":
        raise ArgumentError(
            f"a table is written as .parquet, .csv, .tsv or .jsonl, got {str(target)!r}; choose"
            " one of these."
        )
    if shards > 1 and suffix in SUFFIXES:
        raise ArgumentError(
            f"a table of {shards} shards is written into a folder, got the file name"
            f" {str(target)!r}; leave out its suffix."
        )
    try:
        if suffix in SUFFIXES:
            system.create_dir(str(PurePosixPath(path).parent), recursive=True)
            _write_file(table, system, path, SUFFIXES[suffix])
        else:
            _write_folder(table, system, path, shards)
    except (OSError, pa.ArrowException) as error:
        raise TableError(
            f"the table cannot be written to {str(target)!r}: {one_line(error)}."
        ) from error
    return str(target) if "://" in str(target) else Path(target)


def _write_folder(table: pa.Table, system: Any, folder: str, shards: int) -> None:
    """Write shards, unless the folder already holds files.

    Old and new shards would be read as one table.
    """
    system.create_dir(folder, recursive=True)
    if system.get_file_info(pafs.FileSelector(folder)):
        raise TableError(f"the folder {folder!r} is not empty; write into a new one.")
    bounds = [table.num_rows * index // shards for index in range(shards + 1)]
    for index, (start, stop) in enumerate(pairwise(bounds)):
        _write_file(
            table.slice(start, stop - start),
            system,
            f"{folder.rstrip('/')}/part-{index:05d}.parquet",
            "parquet",
        )


def _write_file(table: pa.Table, system: Any, path: str, kind: str) -> None:
    with system.open_output_stream(path) as stream:
        if kind == "parquet":
            from pyarrow.parquet import write_table as write_parquet

            write_parquet(table, stream, row_group_size=_ROW_GROUP, write_page_checksum=True)
        elif kind == "csv":
            from pyarrow.csv import WriteOptions, write_csv

            tabs = PurePosixPath(path).suffix.lower() != ".csv"
            write_csv(table, stream, WriteOptions(delimiter="\t" if tabs else ","))
        else:
            for start in range(0, table.num_rows, _JSON_RUN):
                lines = (
                    json.dumps(row, ensure_ascii=False, default=str)
                    for row in table.slice(start, _JSON_RUN).to_pylist()
                )
                stream.write(("\n".join(lines) + "\n").encode())
