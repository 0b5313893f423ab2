"""Writing of tables as Parquet with prices in the metadata, CSV, JSON lines, or Parquet shards."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from mildroute._files import one_line, open_location
from mildroute.costs.files import SUFFIXES
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["write_table"]

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
            f" {str(target)!r}; omit its suffix."
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
    """Write shards; raise a TableError if the folder already contains files.

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
