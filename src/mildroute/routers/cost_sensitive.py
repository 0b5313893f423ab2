"""The paper's general algorithm as a linear classifier: each confusion has its own cost."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from mildroute.exceptions import ArgumentError, CostError, ShapeError
from mildroute.routers._linear_model import RowLoss, minimize_linear
from mildroute.routers._order import argmax_last
from mildroute.routers._whitening import whiten
from mildroute.routers.training_rows import Matrix

__all__ = ["CostSensitiveClassifier"]

# Temperatures of the smoothed maximum; each solution is the starting point for the next one.
_TEMPERATURES = (1.0, 0.1, 0.01, 0.001)


class CostSensitiveClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier that minimizes the paper's general cost-sensitive loss.

    A row with the label k costs c(k, j) if it is classified as j. The loss of its scores f is
    ``max_{j != k} c(k, j) * log(1 + exp((f_j - f_k) / rho_k))``, to which a squared norm of the
    weights is added. :class:`mildroute.losses.CostSensitiveLoss` is the same loss for networks.
    Deferral is the special case in which all wrong answers to a label cost the same. Routers learn
    from the costs of experts instead; see :class:`~mildroute.routers.mild.MildRouter`.

    Args:
        costs: c(k, j), shape (K, K), in the order of ``classes_``; not negative. If `None`, every
            confusion costs 1. ``fit`` accepts costs that depend on the row.
        margins: ``"theory"``, the paper's: proportional to ``(m_k X_k^2)^(1/3)`` for m_k rows with
            the label k and the largest feature norm X_k among them. Also ``"uniform"``, or K
            positive numbers. Margins are divided by their mean, which would only rescale the
            penalty.
        form: ``"max"``, or ``"smooth"`` for the paper's smooth bound on it,
            ``log sum_{j != k} (1 + exp((f_j - f_k) / rho_k)) ** c(k, j)``. The maximum is not
            smooth either; the solver replaces it by ``h log sum exp(. / h)`` with h down to a
            thousandth of the largest cost, which is at most ``h log(K - 1)`` larger.
        alpha: Weight of the squared norm, in units of the features' variance.

    Attributes:
        classes_: Labels in increasing order, shape (K,).
        margins_: Margins used, shape (K,), with a mean of 1.
        weights_: Shape (d, K).
        intercept_: Shape (K,).

    Example:
        >>> X = np.arange(-5.0, 6.0)[:, None]
        >>> y = np.digitize(X[:, 0], [-1.5, 1.5])
        >>> CostSensitiveClassifier(alpha=0.001).fit(X, y).predict([[-4.0], [0.0], [4.0]])
        array([0, 1, 2])
    """

    classes_: NDArray[Any]
    margins_: NDArray[np.float64]
    weights_: NDArray[np.float64]
    intercept_: NDArray[np.float64]

    def __init__(
        self,
        costs: Any = None,
        *,
        margins: Any = "theory",
        form: Literal["max", "smooth"] = "max",
        alpha: float = 0.01,
    ) -> None:
        self.costs = costs
        self.margins = margins
        self.form = form
        self.alpha = alpha

    def fit(
        self, X: Any, y: Any, *, costs: Any = None, sample_weight: Any = None
    ) -> CostSensitiveClassifier:
        """Learn from labeled rows.

        Args:
            X: Features, shape (n, d).
            y: Label of each row, shape (n,).
            costs: c(x, y, j) of each row, shape (n, K), in place of the costs of the constructor.
            sample_weight: Weight of each row, shape (n,); rows with zero weight are ignored.
        """
        features, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        weights = _check_sample_weight(sample_weight, features, ensure_non_negative=True)
        has_weight = weights > 0
        features, labels, weights = features[has_weight], labels[has_weight], weights[has_weight]
        if costs is not None and np.shape(costs)[:1] == has_weight.shape:
            costs = np.asarray(costs)[has_weight]
        self.classes_, index = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ArgumentError(
                f"y must have at least 2 classes, got {self.classes_.tolist()}; one class needs no"
                " classifier."
            )
        if self.form not in ("max", "smooth"):
            raise ArgumentError(f"form must be max or smooth, got {self.form!r}.")
        if not self.alpha > 0:
            raise ArgumentError(f"alpha must be positive, got {self.alpha!r}.")
        row_costs = self._row_costs(costs, index)
        self.margins_ = self._margins(features, index, weights)
        design, start = whiten(features, weights), None
        unit = float(row_costs.max()) or 1.0
        for temperature in _TEMPERATURES if self.form == "max" else (1 / unit,):
            loss = _row_loss(row_costs, index, self.margins_, temperature * unit)
            fit = minimize_linear(
                design,
                loss,
                len(self.classes_),
                alpha=self.alpha,
                sample_weight=weights,
                start=start,
                max_iterations=2000,
            )
            start = fit.solution
        self.weights_, self.intercept_ = fit.weights, fit.intercept
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of all classes, shape (n, K).

        With two classes, the result is the lead of the second, shape (n,), as in scikit-learn.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score; a tie goes to the last one."""
        best = argmax_last(self._scores(X))
        return np.asarray(self.classes_[best])

    def _scores(self, X: Any) -> Matrix:
        check_is_fitted(self)
        features = validate_data(self, X, reset=False, dtype=np.float64)
        return np.asarray(features @ self.weights_ + self.intercept_)

    def _row_costs(self, costs: Any, index: NDArray[np.intp]) -> Matrix:
        """Return c(x, k, .) of each row, shape (n, K)."""
        size = len(self.classes_)
        if costs is not None:
            values, shape = np.asarray(costs, dtype=float), (len(index), size)
        else:
            values = np.ones((size, size)) if self.costs is None else np.asarray(self.costs, float)
            shape = (size, size)
        if values.shape != shape:
            raise ShapeError(f"costs must be {shape}, got shape {values.shape}.")
        if not (np.isfinite(values).all() and values.min() >= 0):
            raise CostError(
                f"costs must be finite and not negative, got {values.min()} to {values.max()}."
            )
        return values if costs is not None else values[index]

    def _margins(
        self, features: Matrix, index: NDArray[np.intp], weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the margins with a mean of 1."""
        size = len(self.classes_)
        if not isinstance(self.margins, str):
            margins = np.asarray(self.margins, dtype=float)
            if margins.shape != (size,) or not (np.isfinite(margins).all() and margins.min() > 0):
                raise ArgumentError(
                    f"margins must be {size} positive numbers, got {self.margins!r:.80}."
                )
        elif self.margins == "uniform":
            margins = np.ones(size)
        elif self.margins == "theory":
            squares = (features**2).sum(axis=1) + 1  # the 1 of the intercept
            largest = np.array([squares[index == label].max() for label in range(size)])
            margins = np.cbrt(np.bincount(index, weights, size) * largest)
        else:
            raise ArgumentError(
                f"margins must be theory, uniform or {size} numbers, got {self.margins!r}."
            )
        return np.asarray(margins / margins.mean())


def _row_loss(
    costs: Matrix, labels: NDArray[np.intp], margins: NDArray[np.float64], temperature: float
) -> RowLoss:
    """Return ``h log sum_{j != k} exp(t_j / h)`` with ``t_j = c_j log(1 + e^((f_j - f_k)/rho_k))``.

    At a temperature h of 1 this is the smooth form; as h falls to 0, it approaches the maximum.
    """
    rows = np.arange(len(labels))
    rho = margins[labels][:, None]

    def loss(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        behind = (scores - scores[rows, labels][:, None]) / rho
        terms = costs * np.logaddexp(0, behind) / temperature
        terms[rows, labels] = -np.inf
        totals = logsumexp(terms, axis=1)
        gradient = np.exp(terms - totals[:, None]) * costs * expit(behind) / rho
        gradient[rows, labels] = 0
        gradient[rows, labels] = -gradient.sum(axis=1)
        return temperature * totals, gradient

    return loss
