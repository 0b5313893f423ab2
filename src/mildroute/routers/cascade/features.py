"""Features that a cascade computes from the answers that it has read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve
from scipy.sparse import issparse

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.training_rows import Matrix

__all__ = ["SeenAnswers"]

# Maximum number of answers that are read together.
MOST_SEEN = 2


class SeenAnswers(NamedTuple):
    """The answers of all experts to some rows, in the form that a cascade reads.

    Attributes:
        vectors: Features of each answer, shape (n, p, f).
        readings: The final answer as a number, shape (n, p). Answers with equal numbers in a row
            agree; a negative number means that the text contains no final answer.

    Example:
        >>> readings = np.array([[0, 0], [0, 1], [-1, -1]])
        >>> SeenAnswers(np.zeros((3, 2, 1), dtype=np.float32), readings).agree(0, 1)
        array([ True, False, False])
    """

    vectors: NDArray[np.float32]
    readings: NDArray[np.intp]

    def take(self, rows: Any) -> SeenAnswers:
        """Return the answers to some of the rows."""
        return SeenAnswers(self.vectors[rows], self.readings[rows])

    def agree(self, one: int, other: int) -> NDArray[np.bool_]:
        """Return whether two experts have the same final answer, shape (n,)."""
        readings = self.readings[:, one]
        return np.asarray((readings == self.readings[:, other]) & (readings >= 0))


class RidgeMoments(NamedTuple):
    """The first and second moments of features and targets."""

    mean: NDArray[np.float64]
    covariance: Matrix
    target_mean: NDArray[np.float64]
    moments: Matrix

    def solve(self, alpha: float) -> tuple[Matrix, NDArray[np.float64]]:
        """Return weights, shape (d, q), and intercepts at a penalty."""
        covariance = self.covariance.copy()
        covariance.flat[:: len(covariance) + 1] += alpha * (float(np.trace(covariance)) or 1.0)
        weights = solve(covariance, self.moments, assume_a="pos", check_finite=False)
        return weights, self.target_mean - self.mean @ weights


class AnswerDesign:
    """The vectors of questions, answers and agreements side by side, and their products.

    The products of one matrix serve all sets of experts whose answers may be read: each set selects
    some of its columns.

    Args:
        first: Experts whose answers may be read.
        held_out: Rows that are excluded from training.
    """

    def __init__(
        self,
        X: NDArray[np.float32],
        answers: SeenAnswers,
        first: Sequence[int],
        held_out: NDArray[np.intp],
    ) -> None:
        pairs = list(combinations(first, MOST_SEEN))
        blocks = [X, *(answers.vectors[:, expert] for expert in first)]
        blocks += [_agreement(answers, pair) for pair in pairs]
        self._columns = np.hstack(blocks).astype(np.float32)
        edges = np.cumsum([0, *(block.shape[1] for block in blocks)])
        spans = [np.arange(*edge) for edge in pairwise(edges)]
        self._question = spans[0]
        self._answers = dict(zip(first, spans[1:], strict=False))
        self._agreements = dict(zip(pairs, spans[1 + len(first) :], strict=True))
        self.is_seen = np.ones(len(X), dtype=np.bool_)
        self.is_seen[held_out] = False
        seen = self._columns[self.is_seen]
        self._mean = seen.mean(axis=0, dtype=np.float64)
        centered = seen - self._mean.astype(np.float32)
        self._covariance = (centered.T @ centered).astype(np.float64) / len(seen)

    def part(self, ask: tuple[int, ...], rows: Any) -> NDArray[np.float32]:
        """Return some rows of the columns that are available once some experts were called."""
        return np.asarray(self._columns[rows][:, self._column_indices(ask)])

    def regression(self, ask: tuple[int, ...], targets: Matrix, rows: Any) -> RidgeMoments:
        """Return the moments of the training rows."""
        indices = self._column_indices(ask)
        columns, row_targets = self.part(ask, rows), targets[rows]
        target_mean = row_targets.mean(axis=0)
        centered = (row_targets - target_mean).astype(np.float32)
        return RidgeMoments(
            self._mean[indices],
            self._covariance[np.ix_(indices, indices)],
            target_mean,
            (columns.T @ centered).astype(np.float64) / len(row_targets),
        )

    def _column_indices(self, ask: tuple[int, ...]) -> NDArray[np.intp]:
        parts = [self._question, *(self._answers[expert] for expert in ask)]
        if len(ask) == MOST_SEEN:
            parts.append(self._agreements[ask])
        return np.concatenate(parts)


def _agreement(answers: SeenAnswers, pair: Sequence[int]) -> NDArray[np.float32]:
    return np.where(answers.agree(*pair), 1.0, -1.0).astype(np.float32)[:, None]


def join_answers(X: Matrix, answers: SeenAnswers, ask: Sequence[int]) -> NDArray[np.float32]:
    """Join vectors of questions, vectors of the answers read, and the agreement of the answers."""
    parts = [X, *(answers.vectors[:, expert] for expert in ask)]
    if len(ask) == MOST_SEEN:
        parts.append(_agreement(answers, ask))
    return np.hstack(parts).astype(np.float32)


def to_dense(X: Any) -> NDArray[np.float32]:
    if issparse(X):
        raise ArgumentError(
            f"a cascade needs dense vectors, got a sparse matrix of shape {X.shape}; use a"
            " ReducedEncoder."
        )
    return np.asarray(X, dtype=np.float32)


def check_answers(answers: SeenAnswers, X: Any, errors: Matrix) -> NDArray[np.float32]:
    shape, vectors = errors.shape, to_dense(X)
    if vectors.ndim != 2 or len(vectors) != len(errors):
        raise ShapeError(f"X must be ({len(errors)}, d), got shape {vectors.shape}.")
    if answers.vectors.ndim != 3 or answers.vectors.shape[:2] != shape:
        raise ShapeError(
            f"vectors of answers must be ({shape[0]}, {shape[1]}, f), got shape"
            f" {answers.vectors.shape}."
        )
    if answers.readings.shape != shape:
        raise ShapeError(f"readings must be {shape}, got shape {answers.readings.shape}.")
    if not np.isfinite(answers.vectors).all():
        raise ArgumentError("vectors of answers must be finite, got NaN or infinity.")
    return vectors
