"""The routers that are compared, by name; all are linear and see the same vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.errors import ArgumentError
from mildroute.routers.decode import log_posterior
from mildroute.routers.mild import MildRouter
from mildroute.routers.order import largest
from mildroute.routers.surrogates import (
    CrossEntropyRouter,
    LdamRouter,
    PaperMildRouter,
    TdefRouter,
    WeightedCrossEntropyRouter,
)

__all__ = ["METHODS", "Contestant", "DecodedMild", "router_of"]


@dataclass(frozen=True)
class Contestant:
    """A method: how tables call it, what it is, and how to make its router from a seed.

    Example:
        >>> METHODS["tdef"].label
        'TDEF'
    """

    label: str
    what: str
    make: Callable[[int], Any]


class DecodedMild:
    """MILD as printed, to the last weight; only the choice differs: the posterior that its scores stand for decides, not their largest.

    What separates the two can be due to nothing else than the decision.

    Args:
        seed: Seed of its folds.

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> costs = np.hstack([X > 2, X <= 2]).astype(float)
        >>> DecodedMild(0).fit(X, costs).predict(np.array([[-3.0], [5.0]]))
        array([0, 1])
    """

    def __init__(self, seed: int) -> None:
        self.printed = PaperMildRouter(random_state=seed)

    def fit(self, X: Any, y: Any) -> DecodedMild:
        """Fit as printed, X of shape (n, d) and costs y of shape (n, p)."""
        self.printed.fit(X, y)
        self.penalty_ = self.printed.penalty_
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Index of the expert with the largest posterior, shape (n,)."""
        return largest(log_posterior(self.printed.decision_function(X), self.printed.margins_))


METHODS: dict[str, Contestant] = {
    "tdef": Contestant("TDEF", "complement reward, equal margins", lambda seed: TdefRouter(random_state=seed)),
    "mild": Contestant("MILD printed", "sum reward, theory margins, largest score", lambda seed: PaperMildRouter(random_state=seed)),
    "mild-decoded": Contestant("MILD decoded", "the very scores of MILD printed, largest posterior", DecodedMild),
    "mild-tuned": Contestant(
        "MILD tuned",
        "as printed, margins plus an integer chosen by cross-validation",
        lambda seed: PaperMildRouter(offsets="search", random_state=seed),
    ),
    "mild-uniform": Contestant(
        "MILD uniform",
        "sum reward, equal margins, largest score",
        lambda seed: MildRouter(reward="sum", margins="uniform", decision="argmax", features="raw", random_state=seed),
    ),
    "mild-consistent": Contestant(
        "MILD consistent",
        "sum reward, theory margins, largest posterior; calibrated, with the best single expert among its candidates",
        lambda seed: MildRouter(reward="sum", margins="theory", features="raw", random_state=seed),
    ),
    "mild-consistent-tuned": Contestant(
        "MILD consistent, tuned",
        "the same with margins by cross-validation",
        lambda seed: MildRouter(reward="sum", features="raw", random_state=seed),
    ),
    "mildroute-raw": Contestant(
        "mildroute, raw", "our default on the same vectors as the others", lambda seed: MildRouter(features="raw", random_state=seed)
    ),
    "mildroute": Contestant("mildroute", "our default: features chosen too", lambda seed: MildRouter(random_state=seed)),
    "ce": Contestant("CE", "cross-entropy on the winner", lambda seed: CrossEntropyRouter(random_state=seed)),
    "weighted-ce": Contestant("CWCE", "cross-entropy, rare winners weigh more", lambda seed: WeightedCrossEntropyRouter(random_state=seed)),
    "ldam": Contestant("LDAM", "rare winners must win by more", lambda seed: LdamRouter(random_state=seed)),
}


def router_of(name: str, seed: int) -> Any:
    """A new router of a method.

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
