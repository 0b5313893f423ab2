"""Names of experts where the caller gives them, and plain numbers where not."""

from __future__ import annotations

from collections.abc import Sequence

from mildroute.errors import ShapeError

__all__ = ["names_of"]


def names_of(experts: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """The names, one per expert, checked against their number.

    Example:
        >>> names_of(None, 2)
        ('expert_0', 'expert_1')
    """
    if experts is None:
        return tuple(f"expert_{index}" for index in range(count))
    if len(experts) != count:
        raise ShapeError(f"experts must be ({count},), one name per expert, got {len(experts)}.")
    return tuple(str(name) for name in experts)
