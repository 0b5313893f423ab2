"""Makes the tutorial's files from tweets with the votes of three or more people each.

Queries.parquet and train.parquet.

Run: MILDROUTE_DATA=... python prepare.py
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LABELS = ("hate", "offensive", "neither")
QUERIES, TRAIN = 1000, 2000


def votes_of(row: dict[str, int]) -> list[str]:
    """One label a person."""
    return [label for label in LABELS for _ in range(row[f"votes_{label}"])]


def main() -> None:
    """Draw queries and, apart from them, rows to train classifiers on."""
    rows = pq.read_table(Path(os.environ["MILDROUTE_DATA"], "hatespeech_human.parquet")).to_pylist()
    drawn = [
        rows[place] for place in np.random.default_rng(0).permutation(len(rows))[: QUERIES + TRAIN]
    ]
    queries = [
        {
            "query_id": row["query_id"],
            "input": row["text"],
            "reference": LABELS[row["label"]],
            "votes": votes_of(row),
        }
        for row in drawn[:QUERIES]
    ]
    train = [{"input": row["text"], "label": LABELS[row["label"]]} for row in drawn[QUERIES:]]
    pq.write_table(pa.Table.from_pylist(queries), "queries.parquet")
    pq.write_table(pa.Table.from_pylist(train), "train.parquet")


if __name__ == "__main__":
    main()
