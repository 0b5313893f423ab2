"""Assignment of queries to experts, when not every expert gets every query."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mildroute._fingerprint import text_digest
from mildroute.exceptions import ArgumentError

__all__ = ["sample_experts"]


def sample_experts(names: Sequence[str], count: int | None) -> Callable[[str, str], bool]:
    """Return a function that returns whether an expert gets a query, by their names.

    The assignment is the same in every run, and each expert gets about equally many queries.

    Args:
        names: Names of the experts.
        count: Number of experts that get each query; ``None`` means all.
    """
    if count is None or count == len(names):
        return lambda _expert, _query: True
    if not 1 <= count < len(names):
        raise ArgumentError(
            f"experts per query must be from 1 to {len(names)}, got {count}; omit it for all."
        )

    def rank(expert: str, query: str) -> str:
        return text_digest(f"{expert}\x00{query}", size=8)

    def is_assigned(expert: str, query: str) -> bool:
        own_rank = rank(expert, query)
        return sum(rank(name, query) < own_rank for name in names) < count

    return is_assigned
