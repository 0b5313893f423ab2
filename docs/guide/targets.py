"""How often a target that was chosen on few rows holds on many: figures of operating-point.md.

Run: python docs/guide/targets.py
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import UnreachableTargetError
from mildroute.routers import FrontierRouter

PRICES = np.array([0.0002, 0.005])
SHARE, BUDGET = 0.95, 2.5
ROWS, TESTED, SEEDS = (50, 200, 1000), 50_000, 40
GRID = (0, 10, 20, 50, 100, 200, 500, 1000)


def drawn(rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Vectors and errors.

    A small expert that fails where the first number is high, and a large one that fails now and
    then.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(rows, 8))
    small = rng.random(rows) < 1 / (1 + np.exp(1.0 - 2 * vectors[:, 0]))
    large = rng.random(rows) < 0.1
    return vectors, np.stack([small, large], axis=1).astype(float)


def kept(rows: int, seed: int) -> tuple[bool | None, bool | None]:
    """Whether the quality and the budget that were promised hold on new rows.

    None where none was promised.
    """
    vectors, errors = drawn(rows, seed)
    router = FrontierRouter(price_weights=GRID, random_state=0).fit(vectors, errors, prices=PRICES)
    tested, truth = drawn(TESTED, 10_000 + seed)
    found: list[bool | None] = []
    for choose in (lambda: router.for_quality(SHARE), lambda: router.for_budget(BUDGET)):
        try:
            point = choose()
        except UnreachableTargetError:
            found.append(None)
            continue
        choice = router.predict(tested, point=point)
        score = 1 - truth[np.arange(TESTED), choice].mean()
        bill = 1000 * PRICES[choice].mean()
        found.append(
            bool(bill <= BUDGET)
            if len(found)
            else bool(score >= SHARE * (1 - truth.mean(axis=0).min()))
        )
    return found[0], found[1]


def main() -> None:
    """Print one line for each number of rows."""
    for rows in ROWS:
        results = [kept(rows, seed) for seed in range(SEEDS)]
        for place, name in enumerate((f"quality {SHARE}", f"budget {BUDGET}")):
            promised = [each[place] for each in results if each[place] is not None]
            print(
                f"{rows:5d} rows, {name}: promised {len(promised)} of {SEEDS} times, kept"
                f" {sum(map(bool, promised))}"
            )


if __name__ == "__main__":
    main()
