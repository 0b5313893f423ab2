"""The linear routers that are compared, by name; all see the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import log_posterior
from mildroute.routers._order import argmax_last
from mildroute.routers._rewards import MarginRule, margins_by
from mildroute.routers.mild import MildRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)

__all__ = ["METHODS", "ConsistentMild", "DecodedMild", "Method", "router_of"]


@dataclass(frozen=True)
class Method:
    """A method: its label in tables, its description, and how to make its router from a seed.

    Example:
        >>> METHODS["tdef"].label
        'TDEF'
    """

    label: str
    what: str
    make: Callable[[int], Any]


class DecodedMild:
    """The untuned MILD of the paper with another decision: the largest posterior.

    Its weights are the same to the last bit, so any difference is due to the decision.

    Args:
        seed: Seed of its folds.
        margins: ``"theory"`` or ``"winner_counts"``.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> DecodedMild(0).fit(X, costs).predict(np.array([[-3.0], [5.0]]))
        array([0, 1])
    """

    def __init__(
        self, seed: int, margins: Literal["theory", "winner_counts"] = "winner_counts"
    ) -> None:
        self.printed = PaperMILDRouter(margins=margins, random_state=seed)

    def fit(self, X: Any, y: Any) -> DecodedMild:
        """Fit the untuned MILD, X of shape (n, d) and costs y of shape (n, p)."""
        self.printed.fit(X, y)
        self.alpha_ = self.printed.alpha_
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the expert with the largest posterior, shape (n,)."""
        return argmax_last(log_posterior(self.printed.decision_function(X), self.printed.margins_))


class ConsistentMild:
    """MildRouter with the sum reward and margins from wins.

    Rows on which all experts cost the same do not count.

    Args:
        seed: Seed of its folds.

    Example:
        >>> X = np.linspace(-5.0, 5.0, 101)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> ConsistentMild(0).fit(X, costs).predict(np.array([[-3.0], [5.0]]))
        array([0, 1])
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Any, y: Any) -> ConsistentMild:
        """Fit the router on X of shape (n, d) and costs y of shape (n, p)."""
        wins = margins_by(MarginRule("decided_wins", 1 / 3), -np.asarray(y))
        self.router = MildRouter(
            reward="sum", margins=wins / wins.mean(), features="raw", random_state=self.seed
        ).fit(X, y)
        self.alpha_, self.selection_ = self.router.alpha_, self.router.selection_
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Return the index of the expert with the largest posterior, shape (n,)."""
        return np.asarray(self.router.predict(X), dtype=np.intp)


# The first MILD methods, whose cells are stored, count wins for the paper's m_k. Those with "mass"
# in their name count as the paper does; see :func:`mildroute.losses.margins.reward_mass`.
METHODS: dict[str, Method] = {
    "tdef": Method(
        "TDEF", "complement reward, equal margins", lambda seed: TDEFRouter(random_state=seed)
    ),
    "mild": Method(
        "MILD, winner counts",
        "sum reward, theory margins of winner counts, largest score",
        lambda seed: PaperMILDRouter(margins="winner_counts", random_state=seed),
    ),
    "mild-decoded": Method(
        "MILD, winner counts, decoded", "the very scores, largest posterior", DecodedMild
    ),
    "mild-tuned": Method(
        "MILD, winner counts, tuned",
        "the same margins plus an integer chosen by cross-validation",
        lambda seed: PaperMILDRouter(margins="winner_counts", offsets="search", random_state=seed),
    ),
    "mild-uniform": Method(
        "MILD uniform",
        "sum reward, equal margins, largest score",
        lambda seed: MildRouter(
            reward="sum", margins="uniform", decision="argmax", features="raw", random_state=seed
        ),
    ),
    "mild-consistent": Method(
        "MILD consistent",
        "sum reward, theory margins, largest posterior; calibrated, with the best single expert"
        " among its candidates",
        ConsistentMild,
    ),
    "mild-consistent-tuned": Method(
        "MILD consistent, tuned",
        "the same with margins by cross-validation",
        lambda seed: MildRouter(reward="sum", features="raw", random_state=seed),
    ),
    "mildroute-raw": Method(
        "mildroute, raw",
        "our default on the same vectors as the others",
        lambda seed: MildRouter(features="raw", random_state=seed),
    ),
    "mildroute": Method(
        "mildroute", "our default: features chosen too", lambda seed: MildRouter(random_state=seed)
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
    "mild-mass": Method(
        "MILD untuned, reward mass",
        "sum reward, theory margins of the paper's m_k, largest score",
        lambda seed: PaperMILDRouter(random_state=seed),
    ),
    "mild-mass-decoded": Method(
        "MILD decoded, reward mass",
        "the same scores, largest posterior",
        lambda seed: DecodedMild(seed, "theory"),
    ),
    "mild-mass-tuned": Method(
        "MILD tuned, reward mass",
        "the same margins plus an integer chosen by cross-validation, largest score",
        lambda seed: PaperMILDRouter(offsets="search", random_state=seed),
    ),
    "mild-mass-tuned-each": Method(
        "MILD tuned per expert, reward mass",
        "the same with an integer for each expert",
        lambda seed: PaperMILDRouter(offsets="per_expert", random_state=seed),
    ),
    "mild-mass-consistent": Method(
        "MILD consistent, reward mass",
        "sum reward, theory margins of the paper's m_k, largest posterior; calibrated, with the"
        " best single expert among its candidates",
        lambda seed: MildRouter(reward="sum", margins="theory", features="raw", random_state=seed),
    ),
}


def router_of(name: str, seed: int) -> Any:
    """Build an unfitted router of a method.

    Args:
        name: Name of the method.
        seed: Its seed.

    Returns:
        A router that is not fitted.

    Example:
        >>> router_of("mildroute", 3).random_state
        3
    """
    if name not in METHODS:
        raise ArgumentError(f"a method must be one of {', '.join(METHODS)}, got {name!r}.")
    return METHODS[name].make(seed)
