"""Makes the tutorial's files from tweets with the votes of three or more people each.

Queries.parquet and train.parquet.

Run: MILDROUTE_DATA=... python prepare.py

The folder holds hatespeech_human.parquet, or labeled_data.csv as it is published in the folder data
of github.com/t-davidson/hate-speech-and-offensive-language: both give the same files.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LABELS = ("hate", "offensive", "neither")
QUERIES, TRAIN = 1000, 2000


def tweets() -> list[dict[str, Any]]:
    """All tweets with their label and votes, in the order in which they were published."""
    folder = Path(os.environ.get("MILDROUTE_DATA", ""))
    table, published = folder / "hatespeech_human.parquet", folder / "labeled_data.csv"
    if "MILDROUTE_DATA" not in os.environ or not (table.is_file() or published.is_file()):
        sys.stderr.write(
            "set MILDROUTE_DATA to the folder that holds hatespeech_human.parquet or"
            " labeled_data.csv.\n"
        )
        raise SystemExit(2)
    if table.is_file():
        return pq.read_table(table).to_pylist()  # type: ignore[no-any-return]
    with published.open(encoding="utf-8", newline="") as lines:
        return [
            {
                "query_id": f"hso-{int(row['']):05}",
                "text": row["tweet"],
                "label": int(row["class"]),
                "votes_hate": int(row["hate_speech"]),
                "votes_offensive": int(row["offensive_language"]),
                "votes_neither": int(row["neither"]),
            }
            for row in csv.DictReader(lines)
        ]


def votes_of(row: dict[str, Any]) -> list[str]:
    """One label per person."""
    return [label for label in LABELS for _ in range(row[f"votes_{label}"])]


def main() -> None:
    """Draw queries and, apart from them, rows to train classifiers on."""
    rows = tweets()
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
