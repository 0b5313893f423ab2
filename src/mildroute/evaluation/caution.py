"""What a reader of figures from few rows must be told."""

from __future__ import annotations

__all__ = ["FEWEST_ROWS", "few_rows", "too_few"]

FEWEST_ROWS = 50
"""Rows below which intervals are too narrow to be relied on."""
_FEWEST_TO_JUDGE = 10
"""Rows below which resampling says nothing: one row has an interval without width."""


def too_few(rows: int) -> bool:
    """Whether so few rows were measured that no verdict may rest on them.

    Example:
        >>> too_few(1), too_few(10)
        (True, False)
    """
    return rows < _FEWEST_TO_JUDGE


def few_rows(rows: int) -> tuple[str, ...]:
    """A warning where figures come from too few rows, else nothing.

    Example:
        >>> few_rows(20)
        ('only 20 rows were measured: with fewer than 50, intervals are too narrow and p-values rough; measure more rows',)
        >>> few_rows(50)
        ()
    """
    if rows >= FEWEST_ROWS:
        return ()
    measured = "1 row was" if rows == 1 else f"{rows} rows were"
    return (f"only {measured} measured: with fewer than {FEWEST_ROWS}, intervals are too narrow and p-values rough; measure more rows",)
