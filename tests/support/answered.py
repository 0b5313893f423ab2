"""A cost table with answers, of which a look tells more than the question does."""

from __future__ import annotations

from typing import Any

import numpy as np

from mildroute.costs.table import CostTable

PRICES = {"small": 0.001, "mid": 0.002, "large": 0.02}
_WORDS = ("red", "green", "blue", "tall", "short", "old", "new", "fast", "slow", "warm", "cold")


def answered_columns(rows: int, seed: int) -> dict[str, Any]:
    """Questions that tell nothing, two cheap experts that doubt when they are wrong, one good."""
    random = np.random.default_rng(seed)
    inputs = [" ".join(random.choice(_WORDS, 5)) + f" {seed}-{row}" for row in range(rows)]
    is_right = random.random((rows, 3)) < (0.7, 0.72, 0.97)
    truth = random.integers(0, 4, rows)
    other = (truth[:, None] + random.integers(1, 4, (rows, 3))) % 4
    said = np.where(is_right, truth[:, None], other)
    is_sure = random.random((rows, 3)) < np.where(is_right, 0.9, 0.2)
    columns: dict[str, Any] = {
        "query_id": [f"{seed}-{row}" for row in range(rows)],
        "input": inputs,
    }
    for place, (name, price) in enumerate(PRICES.items()):
        columns[f"score:{name}"] = is_right[:, place].astype(float)
        columns[f"cost:{name}"] = np.full(rows, price)
        columns[f"answer:{name}"] = [
            f"{'This is clear.' if sure else 'I am not certain.'} The answer is ({'ABCD'[letter]})."
            for sure, letter in zip(is_sure[:, place], said[:, place], strict=True)
        ]
    return columns


def answered_table(rows: int, seed: int) -> CostTable:
    return CostTable.from_data(answered_columns(rows, seed), answers=True)
