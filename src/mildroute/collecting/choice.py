"""Which experts are asked which query, when not all are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from mildroute.errors import ArgumentError

__all__ = ["some_experts"]


def some_experts(names: Sequence[str], count: int | None) -> Callable[[str, str], bool]:
    """For each query some experts, the same ones in every run, each expert about equally often.

    Args:
        names: Names of the experts.
        count: How many of them a query is given to, or none for all.

    Returns:
        Whether an expert, by its name, is asked a query, by its name.

    Example:
        >>> wanted = some_experts(["a", "b", "c"], 2)
        >>> sum(wanted(name, "q1") for name in "abc")
        2
    """
    if count is None or count == len(names):
        return lambda _expert, _query: True
    if not 1 <= count < len(names):
        raise ArgumentError(f"experts per query must be from 1 to {len(names)}, got {count}; leave it out for all.")

    def rank(expert: str, query: str) -> bytes:
        return hashlib.blake2b(f"{expert}\x00{query}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    def wanted(expert: str, query: str) -> bool:
        own = rank(expert, query)
        return sum(rank(name, query) < own for name in names) < count

    return wanted
