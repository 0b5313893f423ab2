"""The arrays of an experiment: training rows, test rows, and the cost of each expert on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mildroute.routers.training_rows import Matrix
from paper.config import Costs, ExperimentConfig
from paper.data import answers_of, labeled_of
from paper.experts import Pool, real_predictions, synthetic_predictions
from paper.folders import Folders

__all__ = [
    "FOLDS",
    "Problem",
    "noisy",
    "problem_of",
]


# Number of folds of a table of answers. Each of the seeds 0 to 4 tests on one fold, so five seeds
# together test on every row once.
FOLDS = 5
# Seeds of the random draws, different for each purpose.
_ROWS, _NOISE, _TEST = 3, 4, 5


@dataclass(frozen=True)
class Problem:
    """The training and test rows of a router.

    Args:
        vectors: Training vectors, shape (n, d), float32; d is 0 for raw inputs.
        costs: Training costs, with noise if there is any, shape (n, p).
        test_vectors: Shape (m, d).
        test_costs: Costs without noise, shape (m, p).
        rows: Indices of the n training rows in the data set, for networks that read raw inputs.
        test_rows: Indices of the m test rows in the data set.

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

    They do not depend on the method, so all methods of a seed get the same rows, experts and noise.

    Args:
        cell: The experiment.
        folders: Folders of data and cache.

    Example:
        >>> from paper.config import Data, Experts
        >>> cell = ExperimentConfig(Data("toy"), Experts("synthetic", (0.7, 0.3)))
        >>> problem_of(cell, Folders("", "")).vectors.shape
        (400, 12)
    """
    if cell.experts.kind == "table":
        return _from_answers(cell, folders)
    return _from_labels(cell, folders)


def noisy(costs: Matrix, noise: float, seed: int) -> Matrix:
    """Add Gaussian noise to costs, in units of the largest one. Costs below 0 become 0.

    Args:
        costs: Shape (n, p).
        noise: Standard deviation as a share of the largest cost.
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
        # Experts read frozen vectors even if the router reads raw inputs.
        frozen = labeled_of(replace(data, features="frozen"), folders)
        predictions = real_predictions(
            frozen, Pool(np.sort(train[:half]), cell.experts.coverage, cell.seed), folders
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
