"""Small problems on disk, with the same rows in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mildroute.distributed.shards import vector_column

EXPERTS = ("small", "middle", "large")


def rows(
    count: int = 3000, width: int = 8, seed: int = 0
) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
    """Vectors, and costs of three experts.

    The first is good almost everywhere, the others in a corner each.
    """
    random = np.random.default_rng(seed)
    vectors = (random.normal(size=(count, width)) * np.linspace(0.2, 3.0, width) + 1.0).astype(
        np.float16
    )
    chances = np.stack(
        [np.full(count, 0.2), 0.3 + 0.4 * (vectors[:, 0] > 0.9), 0.1 + 0.6 * (vectors[:, 1] < 1.5)],
        axis=1,
    )
    return vectors, (random.random((count, 3)) < chances).astype(np.float64)


def write(
    folder: Path,
    vectors: NDArray[np.float16],
    costs: NDArray[np.float64],
    files: int = 3,
    group: int = 300,
) -> str:
    """The rows as shards."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, part in enumerate(np.array_split(np.arange(len(vectors)), files)):
        scores = {f"score:{name}": 1 - costs[part, expert] for expert, name in enumerate(EXPERTS)}
        table = pa.table({"vector": vector_column(vectors[part]), **scores})
        pq.write_table(table, folder / f"{place}.parquet", row_group_size=group)
    return str(folder)
