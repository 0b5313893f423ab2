"""CSV and JSON lines as Parquet files: only those can be read from the middle, by many at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.costs.reading import read_batches
from mildroute.costs.sources import SourceFile

__all__ = ["staged"]

_RUN, _ROWS = 8192, 65_536


def staged(files: Sequence[SourceFile], system: Any, folder: str) -> list[SourceFile]:
    r"""Write the rows of text files into Parquet files, in order; what the folder held before is replaced.

    Args:
        files: CSV or JSON.
        system: File system of the folder.
        folder: Where.

    Returns:
        The new files. Columns of a CSV file are still text; files of JSON lines may have columns of different types.

    Example:
        >>> import pathlib, tempfile
        >>> from mildroute.costs.sources import files_of
        >>> with tempfile.TemporaryDirectory() as home:
        ...     _ = pathlib.Path(home, "t.csv").write_text("text,n\none,1\n")
        ...     files = files_of(f"{home}/t.csv")
        ...     [file.kind for file in staged(files, files[0].filesystem, f"{home}/staged")]
        ['parquet']
    """
    system.create_dir(folder, recursive=True)
    system.delete_dir_contents(folder)
    found = []
    for place, table in enumerate(_alike(read_batches(files, None, rows=_RUN))):
        path = f"{folder}/{place:06d}.parquet"
        with system.open_output_stream(path) as stream:
            pq.write_table(table, stream, row_group_size=_RUN, write_page_checksum=True)
        found.append(replace(files[0], path=path, shown=path, kind="parquet", filesystem=system))
    return found


def _alike(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Neighbours of one schema together, up to so many rows."""
    waiting: list[pa.Table] = []
    for table in tables:
        if waiting and (table.schema != waiting[0].schema or sum(each.num_rows for each in waiting) >= _ROWS):
            yield pa.concat_tables(waiting)
            waiting = []
        waiting.append(table)
    if waiting:
        yield pa.concat_tables(waiting)
