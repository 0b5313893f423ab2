"""Costs that carry the names of their experts, so that a fitted router knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ShapeError

__all__ = ["NamedCosts", "named_costs"]


class NamedCosts(np.ndarray):
    """A matrix with ``columns``, which routers read as names of the experts; make one with :func:`named_costs`.

    What is computed from it is a plain array without names.

    Example:
        >>> named_costs([[0.0, 1.0]], ["small", "large"]).columns
        ('small', 'large')
    """

    columns: tuple[str, ...] | None

    def __array_finalize__(self, _source: Any) -> None:
        """A view or a part of it has other columns, so it has no names."""
        self.columns = None


def named_costs(costs: Any, experts: Sequence[str]) -> NDArray[np.float64]:
    """Costs with the names of their experts.

    Args:
        costs: Shape (n, p).
        experts: p names.

    Returns:
        The same numbers; pass them as ``y`` to a router's ``fit``.

    Example:
        >>> from mildroute.routers.single import BestSingleRouter
        >>> BestSingleRouter().fit([[0.0]], named_costs([[0.0, 1.0]], ["small", "large"])).experts_
        array(['small', 'large'], dtype=object)
    """
    named = np.array(costs, dtype=np.float64).view(NamedCosts)
    if named.ndim != 2 or named.shape[1] != len(experts):
        raise ShapeError(f"costs must be (n, {len(experts)}), one column per name, got shape {named.shape}.")
    named.columns = tuple(str(expert) for expert in experts)
    return named
