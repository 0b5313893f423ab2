"""A small table of sums and songs, the former easy for both experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from mildroute.costs.table import CostTable

SUMS, SONGS = (
    ("add", "multiply", "what is the sum of"),
    ("sing", "write a poem about", "tell a story of"),
)


def small_table(rows: int = 240, *, dollars: bool = True) -> CostTable:
    """Sums that both experts can do, songs that only the dear one can, and some luck."""
    random = np.random.default_rng(0)
    song = random.random(rows) < 0.4
    starts = [random.choice(SONGS if each else SUMS) for each in song]
    # Words of its own for each prompt, so that no two look like copies of one template.
    words = np.random.default_rng(1).integers(0, 26, (rows, 4, 6))
    topics = [" ".join("".join(map(chr, 97 + word)) for word in four) for four in words]
    columns: dict[str, Any] = {
        "query_id": [f"q{row}" for row in range(rows)],
        "input": [f"{start} {topic}" for start, topic in zip(starts, topics, strict=True)],
        "group": ["song" if each else "sum" for each in song],
        "score:small": (
            np.where(song, random.random(rows) < 0.1, random.random(rows) < 0.9).astype(float)
        ),
        "score:large": (random.random(rows) < 0.95).astype(float),
    }
    if dollars:
        columns |= {"cost:small": np.full(rows, 0.001), "cost:large": np.full(rows, 0.01)}
    return CostTable.from_data(columns)
