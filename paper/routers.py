"""The linear routers to compare, by name. All of them read the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import log_posterior
from mildroute.routers._order import argmax_last
from mildroute.routers.mild import MildRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)

__all__ = ["METHODS", "DecodedMild", "Method", "router_of"]


@dataclass(frozen=True)
class Method:
    """A method: its column in tables, its description, and a function from a seed to its router.

    Example:
        >>> METHODS["tdef"].label
        'TDEF'
    """

    label: str
    description: str
    make: Callable[[int], Any]


class DecodedMild:
    """MILD with winner counts that chooses the largest posterior instead of the largest score.

    Its weights equal those of the method ``"mild"``, so any difference is due to the decision.

    Args:
        seed: Seed of the folds.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> DecodedMild(0).fit(X, costs).predict(np.array([[-3.0], [5.0]]))
        array([0, 1])
    """

    def __init__(self, seed: int) -> None:
        self.router = PaperMILDRouter(margins="winner_counts", random_state=seed)

    def fit(self, X: Any, y: Any) -> DecodedMild:
        """Fit the router on X of shape (n, d) and costs y of shape (n, p)."""
        self.router.fit(X, y)
        self.alpha_ = self.router.alpha_
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the expert with the largest posterior, shape (n,)."""
        return argmax_last(log_posterior(self.router.decision_function(X), self.router.margins_))


# Results are stored under these names. Methods with "mass" in their name count the paper's m_k (see
# :func:`mildroute.losses.margins.reward_mass`); the other MILD methods count wins.
METHODS: dict[str, Method] = {
    "tdef": Method(
        "TDEF", "complement reward, equal margins", lambda seed: TDEFRouter(random_state=seed)
    ),
    "mild-mass": Method(
        "MILD",
        "sum reward, theory margins, largest score",
        lambda seed: PaperMILDRouter(random_state=seed),
    ),
    "mild-mass-tuned": Method(
        "MILD tuned",
        "the same margins plus a whole number chosen by cross-validation",
        lambda seed: PaperMILDRouter(offsets="search", random_state=seed),
    ),
    "mild-mass-tuned-each": Method(
        "MILD tuned each",
        "the same with a whole number for each expert",
        lambda seed: PaperMILDRouter(offsets="per_expert", random_state=seed),
    ),
    "mild": Method(
        "wins",
        "sum reward, theory margins of winner counts, largest score",
        lambda seed: PaperMILDRouter(margins="winner_counts", random_state=seed),
    ),
    "mild-decoded": Method("wins decoded", "the same scores, largest posterior", DecodedMild),
    "mild-tuned": Method(
        "wins tuned",
        "margins of winner counts plus a whole number chosen by cross-validation",
        lambda seed: PaperMILDRouter(margins="winner_counts", offsets="search", random_state=seed),
    ),
    "mild-uniform": Method(
        "MILD uniform",
        "sum reward, equal margins, largest score",
        lambda seed: MildRouter(
            reward="sum", margins="uniform", decision="argmax", features="raw", random_state=seed
        ),
    ),
    "mildroute": Method(
        "default",
        "the default router of mildroute, which also chooses its features",
        lambda seed: MildRouter(random_state=seed),
    ),
    "ce": Method(
        "CE", "cross-entropy on the winner", lambda seed: CrossEntropyRouter(random_state=seed)
    ),
    "weighted-ce": Method(
        "CWCE",
        "cross-entropy, rare winners weigh more",
        lambda seed: WeightedCrossEntropyRouter(random_state=seed),
    ),
    "ldam": Method(
        "LDAM", "rare winners must win by more", lambda seed: LDAMRouter(random_state=seed)
    ),
}


def router_of(name: str, seed: int) -> Any:
    """Return a new router of a method.

    Args:
        name: Name of the method.
        seed: Seed of the router.

    Example:
        >>> router_of("mildroute", 3).random_state
        3
    """
    if name not in METHODS:
        raise ArgumentError(f"a method must be one of {', '.join(METHODS)}, got {name!r}.")
    return METHODS[name].make(seed)
