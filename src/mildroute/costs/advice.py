"""What to look at before routing on a table, in sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mildroute.costs.counted import counted

__all__ = ["warnings_of"]

_COLLAPSE = 0.8
_FEW_ROWS = 200


def warnings_of(summary: Any, collapse: tuple[str, float]) -> tuple[str, ...]:
    """Warnings about a summary.

    Args:
        summary: A ``Summary``.
        collapse: The expert that wins most decided rows, and its share of them.

    Returns:
        One sentence each.

    Example:
        >>> from mildroute.costs.summary import summarise
        >>> summarise({"score:a": [1] * 300, "score:b": [0] * 300}).warnings[0]
        "collapse risk: 'a' wins 100% of the rows on which the experts differ, so a plain classifier would always choose it."
    """
    return tuple(_sentences(summary, *collapse))


def _sentences(summary: Any, leader: str, share: float) -> Iterator[str]:
    if share > _COLLAPSE:
        yield (
            f"collapse risk: {leader!r} wins {share:.0%} of the rows on which the experts differ, "
            "so a plain classifier would always choose it."
        )
    if not summary.decided:
        yield _tied(summary)
    if summary.repeated_ids:
        yield f"{_repeat(summary.repeated_ids)} the query_id of an earlier row; fit and compare refuse them unless they are identical."
    if summary.repeated_texts:
        yield f"{_repeat(summary.repeated_texts)} the text of an earlier row; a split keeps them on one side."
    for expert, other in summary.dominated.items():
        dearer = " and never dearer" if summary.oracle_dollars_per_1000 is not None else ""
        yield f"{expert!r} is dominated: {other!r} is never worse{dearer} on any row, so no router needs {expert!r}."
    if summary.oracle_dollars_per_1000 is None:
        yield "the table has no dollars: quality alone is compared; add cost:<expert> columns or use with_prices()."
    if summary.rows < _FEW_ROWS:
        yield f"only {counted(summary.rows, 'row')}: intervals will be wide; {_FEW_ROWS} or more are advisable."


def _tied(summary: Any) -> str:
    if summary.price_weight or summary.oracle_dollars_per_1000 is None:
        return "all experts tie on every row: there is nothing to learn."
    return f"all experts score the same on every row: take the cheapest, {summary.best_by_score.name!r}; no router is needed."


def _repeat(count: int) -> str:
    return f"{counted(count, 'row')} {'repeats' if count == 1 else 'repeat'}"
