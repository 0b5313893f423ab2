"""Keeps what the models of a collected folder answered, one small file each, for replay.yaml.

No query is in them.

Run: python record.py costs answers
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

KEPT = ["query_id", "text", "tokens_in", "tokens_out", "dollars", "latency"]
PEOPLE = {"person"}


def main(collected: str, answers: str) -> None:
    """One file for each model."""
    table = ds.dataset(Path(collected, "_collected", "answers"), format="parquet").to_table()
    table = table.filter(pc.equal(table["error"], "")).sort_by("query_id")
    Path(answers).mkdir(exist_ok=True)
    for expert in set(table["expert"].to_pylist()) - PEOPLE:
        rows = table.filter(pc.equal(table["expert"], expert)).select(KEPT)
        pq.write_table(rows, Path(answers, f"{expert}.parquet"), compression="zstd")


if __name__ == "__main__":
    main(*sys.argv[1:])
