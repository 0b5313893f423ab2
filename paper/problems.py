"""From a cell to arrays: which rows teach, which test, and what each expert costs on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import MarginRule, argmax_last, log_posterior, margins_by
from mildroute.routers.mild import MildRouter
from mildroute.routers.surrogate import (
    CrossEntropyRouter,
    LDAMRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)
from mildroute.routers.training_rows import Matrix
from paper.config import Costs, ExperimentConfig
from paper.data import (
    Folders,
    Pool,
    answers_of,
    labeled_of,
    real_predictions,
    synthetic_predictions,
)

__all__ = [
    "FOLDS",
    "METHODS",
    "ConsistentMild",
    "DecodedMild",
    "Method",
    "Problem",
    "noisy",
    "problem_of",
    "router_of",
]


# The routers that are compared, by name; all are linear and see the same vectors.


@dataclass(frozen=True)
class Method:
    """A method: how tables call it, what it is, and how to make its router from a seed.

    Example:
        >>> METHODS["tdef"].label
        'TDEF'
    """

    label: str
    what: str
    make: Callable[[int], Any]


class DecodedMild:
    """The untuned MILD of the paper, to the last weight; only the choice differs.

    The posterior that its scores stand for decides, not their largest.

    What separates the two can be due to nothing else than the decision.

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
        """Index of the expert with the largest posterior, shape (n,)."""
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
        """Fit it on X of shape (n, d) and costs y of shape (n, p)."""
        wins = margins_by(MarginRule("decided_wins", 1 / 3), -np.asarray(y))
        self.router = MildRouter(
            reward="sum", margins=wins / wins.mean(), features="raw", random_state=self.seed
        ).fit(X, y)
        self.alpha_, self.selection_ = self.router.alpha_, self.router.selection_
        return self

    def predict(self, X: Any) -> NDArray[np.intp]:
        """Index of the expert with the largest posterior, shape (n,)."""
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


# From a cell to arrays: which rows teach, which test, and what each expert costs on them.


# Folds of a table of answers; seeds 0 to 4 test on one fold each, so that five seeds together test
# on every row once.
FOLDS = 5
# What a draw is for; see :mod:`paper.data`.
_ROWS, _NOISE, _TEST = 3, 4, 5


@dataclass(frozen=True)
class Problem:
    """What a router learns from and is tested on.

    Args:
        vectors: Shape (n, d), float32; d is 0 where the data is raw.
        costs: As the router sees them, shape (n, p).
        test_vectors: Shape (m, d).
        test_costs: Without noise, shape (m, p).
        rows: Rows of the data set behind the n rows, for routers that read raw inputs.
        test_rows: The same for the m rows.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy", test=50), Experts("synthetic", (0.7, 0.3)))
        >>> problem_of(cell, Folders("", "")).test_costs.shape
        (50, 2)
    """

    vectors: NDArray[np.float32]
    costs: Matrix
    test_vectors: NDArray[np.float32]
    test_costs: Matrix
    rows: NDArray[np.intp]
    test_rows: NDArray[np.intp]


def problem_of(cell: ExperimentConfig, folders: Folders) -> Problem:
    """Return the arrays of a cell.

    The method plays no part, so all methods of a seed meet the same rows, experts and noise.

    Args:
        cell: The experiment.
        folders: Where data and cache lie.

    Returns:
        The arrays.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> problem_of(cell, Folders("", "")).vectors.shape
        (400, 12)
    """
    return (
        _from_answers(cell, folders)
        if cell.experts.kind == "table"
        else _from_labels(cell, folders)
    )


def noisy(costs: Matrix, noise: float, seed: int) -> Matrix:
    """Costs with Gaussian noise of a share of the largest cost, none below 0.

    Args:
        costs: Shape (n, p).
        noise: The share.
        seed: Seed of the draw.

    Returns:
        Shape (n, p).

    Example:
        >>> noisy(np.ones((1, 2)), 0.0, seed=0)
        array([[1., 1.]])
    """
    if noise == 0:
        return costs
    drawn = np.random.default_rng([_NOISE, seed]).normal(size=costs.shape)
    return np.asarray(np.maximum(0.0, costs + noise * costs.max() * drawn))


def _from_labels(cell: ExperimentConfig, folders: Folders) -> Problem:
    inputs, data = labeled_of(cell.data, folders), cell.data
    train = np.random.default_rng([_ROWS, cell.seed]).permutation(np.flatnonzero(inputs.is_train))
    train = train[: data.train] if data.train else train
    # The test rows are the same for every seed.
    test = np.random.default_rng(_TEST).permutation(np.flatnonzero(~inputs.is_train))
    test = np.sort(test[: data.test] if data.test else test)
    if cell.experts.kind == "real":
        half = len(train) // 2
        # Experts read frozen vectors, whatever the router reads.
        seen = labeled_of(replace(data, features="frozen"), folders)
        predictions = real_predictions(
            seen, Pool(np.sort(train[:half]), cell.experts.coverage, cell.seed), folders
        )
        train = train[half:]
    else:
        predictions = synthetic_predictions(inputs.labels, cell.experts.coverage, cell.seed)
    train = np.sort(train)
    errors = (predictions != inputs.labels[:, None]).astype(np.float64)
    return _problem(inputs.vectors, errors, cell, train, test)


def _from_answers(cell: ExperimentConfig, folders: Folders) -> Problem:
    inputs = answers_of(cell.data, cell.experts.names, folders)
    round_of_folds, fold = divmod(cell.seed, FOLDS)
    order = np.random.default_rng([_ROWS, round_of_folds]).permutation(len(inputs.rows))
    is_test = np.arange(len(order)) % FOLDS == fold
    train, test = order[~is_test], np.sort(order[is_test])
    train = np.sort(train[: cell.data.train] if cell.data.train else train)
    return _problem(inputs.vectors, inputs.errors, cell, train, test, inputs.rows)


def _problem(
    vectors: NDArray[np.float32],
    errors: Matrix,
    cell: ExperimentConfig,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    rows: NDArray[np.intp] | None = None,
) -> Problem:
    costs = _with_fees(errors, cell.costs)
    names = np.arange(len(errors)) if rows is None else rows
    return Problem(
        vectors[train],
        noisy(costs[train], cell.costs.noise, cell.seed),
        vectors[test],
        costs[test],
        names[train],
        names[test],
    )


def _with_fees(errors: Matrix, costs: Costs) -> Matrix:
    return errors + np.asarray(costs.beta) if costs.beta else errors
