"""The experts of the image experiments: synthetic ones, and classifiers of some of the classes."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paper.data import Labeled
from paper.folders import Folders, cached_array

__all__ = ["Pool", "owner_of_class", "real_predictions", "synthetic_predictions"]


# Share of the rows of other classes that a real expert has seen, as in the paper.
_FOREIGN = 0.01


# Seeds of the random draws, different for each purpose.
_GUESSES, _FOREIGNERS = 1, 2


_RECIPE = (
    "LogisticRegression(C=10, max_iter=300) on the frozen vectors in units of their deviation, 1%"
    " foreign"
)


def owner_of_class(classes: int, coverage: tuple[float, ...]) -> NDArray[np.intp]:
    """Return the expert that owns each class.

    The first expert owns the first share of the classes, and so on.

    Args:
        classes: Number of classes.
        coverage: Share of each expert, shape (p,); the shares sum to 1.

    Returns:
        Shape (classes,).

    Example:
        >>> owner_of_class(10, (0.7, 0.2, 0.1))
        array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])
    """
    ends = np.rint(np.cumsum(coverage) * classes)
    return np.searchsorted(ends, np.arange(classes), side="right").astype(np.intp)


def synthetic_predictions(
    labels: NDArray[np.intp], coverage: tuple[float, ...], seed: int
) -> NDArray[np.intp]:
    """Return predictions that are right on an expert's own classes and a uniform guess elsewhere.

    Args:
        labels: Shape (n,).
        coverage: Share of the classes of each expert, shape (p,).
        seed: Seed of the guesses.

    Returns:
        Shape (n, p).

    Example:
        >>> synthetic_predictions(np.array([0, 0, 1, 1]), (0.5, 0.5), seed=0)[:2, 0]
        array([0, 0])
    """
    classes = int(labels.max()) + 1
    own = owner_of_class(classes, coverage)[labels][:, None] == np.arange(len(coverage))
    guesses = np.random.default_rng([_GUESSES, seed]).integers(classes, size=own.shape)
    return np.where(own, labels[:, None], guesses)


@dataclass(frozen=True)
class Pool:
    """The rows that real experts are trained on, the shares of the classes, and the seed.

    Example:
        >>> Pool(np.arange(5), (0.5, 0.5), seed=0).coverage
        (0.5, 0.5)
    """

    rows: NDArray[np.intp]
    coverage: tuple[float, ...]
    seed: int


def real_predictions(inputs: Labeled, pool: Pool, folders: Folders) -> NDArray[np.intp]:
    """Return predictions of experts that are trained on classes of their own.

    Each expert is a logistic regression on the frozen vectors, trained on all rows of its own
    classes in the pool and on 1% of the pool's other rows. Predictions are cached.

    Args:
        inputs: Vectors (n, d) and labels (n,).
        pool: Rows to train on. A router must learn from other rows, because experts are better on
            rows that they have seen.
        folders: Folders whose cache to use.

    Returns:
        Shape (n, p).

    Example:
        >>> import tempfile
        >>> from paper.config import Data
        >>> from paper.data import labeled_of
        >>> folders = Folders("", tempfile.mkdtemp())
        >>> toy = labeled_of(Data("toy"), folders)
        >>> real_predictions(toy, Pool(np.arange(200), (0.7, 0.3), seed=0), folders).shape
        (600, 2)
    """
    digest = hashlib.sha256(f"{_RECIPE} {pool.coverage} {pool.seed}".encode())
    for part in (inputs.vectors, inputs.labels, pool.rows):
        digest.update(np.ascontiguousarray(part).tobytes())
    return cached_array(
        folders, f"experts-{digest.hexdigest()[:32]}", partial(_trained, inputs, pool)
    ).astype(np.intp)


def _trained(inputs: Labeled, pool: Pool) -> NDArray[np.int16]:
    owner = owner_of_class(int(inputs.labels.max()) + 1, pool.coverage)[inputs.labels[pool.rows]]
    random = np.random.default_rng([_FOREIGNERS, pool.seed])
    unit = inputs.vectors[pool.rows].std(axis=0).max()
    vectors = inputs.vectors / max(float(unit), 1e-12)
    predictions = []
    for expert in range(len(pool.coverage)):
        foreign = np.flatnonzero(owner != expert)
        some = random.choice(foreign, size=round(_FOREIGN * len(foreign)), replace=False)
        rows = pool.rows[np.sort(np.concatenate([np.flatnonzero(owner == expert), some]))]
        predictions.append(_classifier(vectors[rows], inputs.labels[rows]).predict(vectors))
    return np.stack(predictions, axis=1).astype(np.int16)


def _classifier(vectors: NDArray[np.float32], labels: NDArray[np.intp]) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # An expert need not be the optimum of its loss.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=10.0, max_iter=300).fit(vectors, labels)
