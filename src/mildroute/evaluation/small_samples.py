"""Warnings for figures from few rows."""

from __future__ import annotations

__all__ = ["FEWEST_ROWS", "few_rows", "too_few"]

# Below this number of rows intervals are too narrow to be reliable.
FEWEST_ROWS = 50
# Below this number of rows resampling is meaningless: the interval of one row has no width.
_FEWEST_TO_JUDGE = 10


def too_few(rows: int) -> bool:
    """Return whether the rows are too few for a verdict."""
    return rows < _FEWEST_TO_JUDGE


def few_rows(rows: int) -> tuple[str, ...]:
    """Return a warning if figures come from too few rows, else an empty tuple."""
    if rows >= FEWEST_ROWS:
        return ()
    measured = "1 row was" if rows == 1 else f"{rows} rows were"
    return (
        (
            f"only {measured} measured: with fewer than {FEWEST_ROWS}, intervals are too narrow and"
            " p-values rough; measure more rows"
        ),
    )
