"""Numbers of things in words."""

from __future__ import annotations

__all__ = ["counted"]


def counted(count: int, thing: str) -> str:
    """So many of a thing.

    Args:
        count: How many.
        thing: One of them.

    Returns:
        The number with thousands set apart, and the thing in singular or plural.

    Example:
        >>> counted(1, "row"), counted(1200, "row"), counted(2, "query")
        ('1 row', '1,200 rows', '2 queries')
    """
    if count == 1:
        return f"1 {thing}"
    return f"{count:,} {thing[:-1]}ies" if thing.endswith("y") else f"{count:,} {thing}s"
