"""What a reader of figures from few rows must be told."""

from __future__ import annotations

__all__ = ["FEWEST_ROWS", "few_rows"]

FEWEST_ROWS = 50
"""Rows below which intervals are too narrow to be relied on."""


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
    return (
        f"only {rows} rows were measured: with fewer than {FEWEST_ROWS}, intervals are too narrow and p-values rough; measure more rows",
    )
