"""Questions of made-up words, some of them repeated, with scores that depend on the kind."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from mildroute.costs.table import CostTable

SOUNDS = re.findall(r"\w+", "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu")


def word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(SOUNDS, 3))


def questions(count: int, seed: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Texts of made-up words; a tenth of the difference between experts shows, the rest is luck."""
    rng = np.random.default_rng(seed)
    is_hard = rng.random(count) < 0.5
    texts = [
        " ".join(
            [("prove" if hard else "name") if rng.random() < 0.7 else "give"]
            + [word(rng) for _ in range(12)]
        )
        for hard in is_hard
    ]
    chances = np.stack([np.where(is_hard, 0.45, 0.75), np.where(is_hard, 0.85, 0.9)], axis=1)
    scores = (rng.random((count, 2)) < chances).astype(float)
    return texts, scores, is_hard


def table_of(texts: Any, scores: np.ndarray, **more: Any) -> CostTable:
    columns = {"input": list(texts), "score:small": scores[:, 0], "score:large": scores[:, 1]}
    bills = {"cost:small": [0.001] * len(scores), "cost:large": [0.01] * len(scores)}
    return CostTable.from_data({**columns, **bills, **more})


def repeated(count: int, times: int, seed: int = 0) -> CostTable:
    texts, scores, _ = questions(count, seed)
    rows = np.repeat(np.arange(count), times)
    return table_of([texts[row] for row in rows], scores[rows])


FRESH = table_of(*questions(3000, 99)[:2])
