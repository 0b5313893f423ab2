"""Small tables on disk and encoders that need no data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.embedding.shards import ShardFolder
from mildroute.encoders.text import HashingEncoder

WIDTH = 16
WORDS = ("add", "prove", "sing", "write a poem about", "what is the sum of")


def hashing(width: int = WIDTH, **settings: Any) -> HashingEncoder:
    return HashingEncoder(columns=width, **settings).fit(["a"])


def columns(rows: int, *, changed: int | None = None) -> dict[str, Any]:
    """A cost table in which one text may be another one."""
    texts = [f"{WORDS[row % len(WORDS)]} {row}" for row in range(rows)]
    if changed is not None:
        texts[changed] = "changed"
    songs = np.array([row % len(WORDS) in (2, 3) for row in range(rows)])
    return {
        "input": texts,
        "score:small": 1.0 - songs,
        "score:large": np.where(songs, 1.0, 0.0),
        "cost:small": [0.1] * rows,
        "cost:large": [1.0] * rows,
    }


def write(path: Path, rows: int = 50, *, group: int = 7, changed: int | None = None) -> Path:
    pq.write_table(pa.table(columns(rows, changed=changed)), path, row_group_size=group)
    return path


def stored(folder: Path | str) -> pa.Table:
    """All rows in the open, in the order of the names."""
    return pa.concat_tables(
        [pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet"))]
    )


def vectors_of(table: pa.Table, name: str = "vector") -> Any:
    return np.stack([np.frombuffer(row, "<f2") for row in table.column(name).to_pylist()])


def in_the_open(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.parquet")}


def is_whole_or_silent(folder: Path) -> bool:
    """A manifest is there only beside all of its shards and no others."""
    said = ShardFolder(str(folder)).manifest()
    return said is None or set(said["shards"]) == in_the_open(folder)
