"""Makes images.parquet and train_images.parquet.

Small photographs as numbers, with the votes of about 50 people each.

Run: MILDROUTE_DATA=... python prepare_images.py
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
QUERIES, TRAIN = 1000, 3000
CELLS, DIRECTIONS = 4, 8


def numbers_of(encoded: bytes) -> NDArray[np.float64]:
    """Where edges run and what colours there are, in each of 16 cells: shape (176,)."""
    pixels = np.asarray(Image.open(io.BytesIO(encoded)).convert("RGB"), dtype=float) / 255
    down, right = np.gradient(pixels.mean(axis=2))
    direction = np.floor((np.arctan2(down, right) % np.pi) / np.pi * DIRECTIONS).clip(
        max=DIRECTIONS - 1
    )
    strength = np.hypot(down, right)
    edges = np.stack([_cells(strength * (direction == place)) for place in range(DIRECTIONS)])
    colours = np.stack([_cells(pixels[:, :, channel]) for channel in range(3)])
    return np.concatenate([edges.ravel() * 4, colours.ravel()]).round(3)


def _cells(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    side = len(plane) // CELLS
    return plane.reshape(CELLS, side, CELLS, side).mean(axis=(1, 3))


def query_of(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers twice: as text, which the router reads, and as a vector for the classifiers."""
    numbers = numbers_of(row["image"]).tolist()
    return {
        "query_id": f"cifar-{row['index']:05}",
        "input": " ".join(map(str, numbers)),
        "reference": LABELS[row["label"]],
        "numbers": numbers,
        "votes": dict(zip(LABELS, row["human_counts"], strict=True)),
    }


def main() -> None:
    """Queries from the test images, which people labeled, and rows to train on from the others."""
    images = Path(os.environ.get("MILDROUTE_DATA", ""), "cifar10.parquet")
    if "MILDROUTE_DATA" not in os.environ or not images.is_file():
        sys.stderr.write("set MILDROUTE_DATA to the folder that holds cifar10.parquet.\n")
        raise SystemExit(2)
    table = pq.read_table(images).to_pylist()
    drawn = [table[place] for place in np.random.default_rng(0).permutation(len(table))]
    queries = [query_of(row) for row in [row for row in drawn if row["split"] == "test"][:QUERIES]]
    train = [row for row in drawn if row["split"] == "train"][:TRAIN]
    rows = [
        {"numbers": numbers_of(row["image"]).tolist(), "label": LABELS[row["label"]]}
        for row in train
    ]
    pq.write_table(pa.Table.from_pylist(queries), "images.parquet")
    pq.write_table(pa.Table.from_pylist(rows), "train_images.parquet")


if __name__ == "__main__":
    main()
