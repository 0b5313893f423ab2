"""Folds, the path of penalties over them, and held-out posteriors of any router."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._linear_model import (
    ROUGH,
    RowLoss,
    WhitenedFeatures,
    minimize_linear,
    whiten,
)
from mildroute.routers.base import Matrix

# Cross-validation along a path of penalties, where each solution starts the next one.


# Penalties tried, from strong to weak, in units of the features' variance.
ALPHAS: tuple[float, ...] = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 3e-5)


# Number of folds, or pairs of train and test rows as scikit-learn's splitters make them.
CV: TypeAlias = int | Sequence[tuple[Any, Any]]


def count_folds(cv: CV) -> int:
    """Return the number of folds; refuse anything but a number from 2 or at least two row pairs."""
    is_list = isinstance(cv, list | tuple) and all(len(pair) == 2 for pair in cv)
    folds = len(cv) if is_list else cv  # type: ignore[arg-type]
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ArgumentError(
            f"cv must be a number of folds, at least 2, or a list of train and test rows, got"
            f" {cv!r:.80}; 5 is the default."
        )
    return int(folds)


def cluster_codes(clusters: Any, rows: int) -> NDArray[np.intp] | None:
    """Return cluster numbers from 0, shape (n,), or `None` if every row is its own cluster.

    Args:
        clusters: Cluster of each row, shape (n,), or `None`.
        rows: Number of rows n.
    """
    if clusters is None:
        return None
    if len(clusters) != rows:
        raise ShapeError(f"clusters must be ({rows},), one per row, got {len(clusters)}.")
    names, codes = np.unique(np.asarray(clusters), return_inverse=True)
    return None if len(names) == rows else codes.astype(np.intp)


def count_units(clusters: NDArray[np.intp] | None, rows: int) -> int:
    """Return the number of clusters, or of rows if each row is its own cluster."""
    return rows if clusters is None else int(clusters.max()) + 1


def assign_folds(
    rows: int,
    cv: CV,
    seed: int | None,
    kept: NDArray[np.bool_] | None = None,
    clusters: NDArray[np.intp] | None = None,
) -> NDArray[np.intp]:
    """Return the fold in which each row is held out, shape (n,); balanced, shuffled by the seed.

    Args:
        rows: Number of rows n.
        cv: Number of folds, or pairs of train and test rows, in which each row is tested once.
        seed: Seed of the shuffling.
        kept: Positions of these rows among the rows that the pairs in ``cv`` index; defaults to
            all.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`; a cluster is held out
            as a whole. Ignored if ``cv`` names the rows.
    """
    if isinstance(cv, int | np.integer) and clusters is not None:
        return _assign_clusters(clusters, int(cv), seed)
    if isinstance(cv, int | np.integer):
        assigned = np.zeros(rows, dtype=np.intp)
        splitter = KFold(max(2, min(cv, rows)), shuffle=True, random_state=seed or 0)
        for fold, (_, held_out) in enumerate(splitter.split(np.empty(rows))):
            assigned[held_out] = fold
        return assigned
    tested = np.concatenate([np.asarray(held_out, dtype=np.intp) for _, held_out in cv])
    number = np.repeat(np.arange(len(cv)), [len(held_out) for _, held_out in cv])
    total = rows if kept is None else len(kept)
    if not np.array_equal(np.sort(tested), np.arange(total)):
        raise ArgumentError(
            f"cv must test each of {total} rows once, got {len(tested)} test rows; make the pairs"
            " with KFold(...).split(X)."
        )
    assigned = number[np.argsort(tested)]
    return assigned if kept is None else assigned[kept]


def _assign_clusters(clusters: NDArray[np.intp], cv: int, seed: int | None) -> NDArray[np.intp]:
    """Return folds of whole clusters, largest first, each put in the fold with the fewest rows."""
    sizes = np.bincount(clusters)
    shuffled = np.random.default_rng(seed or 0).permutation(len(sizes))
    filled = np.zeros(max(1, min(cv, len(sizes))), dtype=np.intp)
    assigned = np.empty(len(sizes), dtype=np.intp)
    for cluster in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        assigned[cluster] = fold = int(filled.argmin())
        filled[fold] += sizes[cluster]
    return assigned[clusters]


@dataclass(frozen=True)
class Fold:
    """The training rows of one fold, prepared once for every router tried on them."""

    seen: NDArray[np.intp]
    held_out: NDArray[np.intp]
    design: WhitenedFeatures
    weight: NDArray[np.float64] | None


def prepare_folds(
    features: Any, fold: NDArray[np.intp], sample_weight: NDArray[np.float64] | None = None
) -> list[Fold]:
    """Prepare the training rows of each fold."""
    folds = []
    for current in np.unique(fold):
        seen, held_out = np.flatnonzero(fold != current), np.flatnonzero(fold == current)
        weight = None if sample_weight is None else sample_weight[seen]
        folds.append(Fold(seen, held_out, whiten(features[seen], weight, np.float32), weight))
    return folds


def held_out_scores(
    features: Any,
    loss_of: Callable[[NDArray[np.intp]], RowLoss],
    experts: int,
    fold: NDArray[np.intp],
    *,
    alphas: Sequence[float] = ALPHAS,
    sample_weight: NDArray[np.float64] | None = None,
    paid_by: Callable[[NDArray[np.float32]], tuple[float, float]] | None = None,
    prepared: list[Fold] | None = None,
) -> NDArray[np.float32]:
    """Return scores of each row, for each penalty, by a linear router that has not seen its fold.

    Args:
        features: Shape (n, d), dense or sparse.
        loss_of: Gives the loss of the rows with these indices; see
            :data:`~mildroute.routers._linear_model.RowLoss`.
        experts: Number of experts p.
        fold: Fold of each row, shape (n,).
        alphas: From strong to weak.
        sample_weight: Weight of each row, shape (n,).
        paid_by: Computes the mean cost and its standard error from scores of shape (n, p); the path
            ends where the cost has risen by more than that error.
        prepared: The result of :func:`prepare_folds` for these features, if several losses are
            tried on them.

    Returns:
        Shape (penalties, n, p), with fewer penalties if the path ended early. The solutions are
        precise enough to compare, not fully converged.
    """
    scores = np.empty((len(alphas), len(fold), experts), dtype=np.float32)
    folds = prepare_folds(features, fold, sample_weight) if prepared is None else prepared
    losses = [loss_of(part.seen) for part in folds]
    starts: list[NDArray[np.float64] | None] = [None] * len(folds)
    best = np.inf
    for step, alpha in enumerate(alphas):
        for number, (part, loss) in enumerate(zip(folds, losses, strict=True)):
            fit = minimize_linear(
                part.design,
                loss,
                experts,
                alpha=alpha,
                sample_weight=part.weight,
                start=starts[number],
                tolerance=ROUGH,
            )
            starts[number] = fit.solution
            scores[step, part.held_out] = fit.scores(features[part.held_out])
        if paid_by is not None:
            cost, error = paid_by(scores[step])
            if cost > best + error:
                return scores[: step + 1]
            best = min(best, cost)
    return scores


# Posteriors of any router on rows that it has not seen.


_FOLDS = 5


def fit_with_metadata(
    router: Any,
    X: Any,
    costs: Matrix,
    sample_weight: NDArray[np.float64] | None = None,
    groups: Any = None,
    clusters: NDArray[np.intp] | None = None,
) -> Any:
    """Fit a router, passing on the weights, groups and clusters that its ``fit`` accepts."""
    parameters = inspect.signature(router.fit).parameters
    metadata = {"sample_weight": sample_weight, "groups": groups, "clusters": clusters}
    return router.fit(
        X,
        costs,
        **{
            name: value
            for name, value in metadata.items()
            if value is not None and name in parameters
        },
    )


def cross_val_posterior(
    router: Any,
    X: Any,
    costs: Matrix,
    sample_weight: NDArray[np.float64] | None = None,
    groups: Any = None,
    clusters: NDArray[np.intp] | None = None,
) -> Matrix:
    """Return the posterior of each training row by a router that has not seen its fold.

    If the router keeps such posteriors, they are returned. Otherwise copies of the router are
    fitted on all folds but one, with every ``"cv"`` parameter set to the value that the router
    selected.

    Args:
        router: A fitted router.
        X: Its training rows, shape (n, d).
        costs: Their costs, shape (n, p).
        sample_weight: Their weights, shape (n,), or `None`.
        groups: Their groups, shape (n,), or `None`.
        clusters: Number of their clusters, shape (n,), or `None`.
    """
    if hasattr(router, "cross_val_posterior"):
        return np.asarray(router.cross_val_posterior())
    if count_units(clusters, len(costs)) == 1:
        return np.asarray(router.predict_proba(X))
    fold = assign_folds(len(costs), _FOLDS, seed=0, clusters=clusters)
    posterior = np.empty(costs.shape)
    for current in np.unique(fold):
        seen, unseen = fold != current, fold == current
        weight = None if sample_weight is None else sample_weight[seen]
        copy = fit_with_metadata(
            with_found_params(router),
            X[seen],
            costs[seen],
            weight,
            None if groups is None else np.asarray(groups)[seen],
            None if clusters is None else cluster_codes(clusters[seen], int(seen.sum())),
        )
        posterior[unseen] = copy.predict_proba(X[unseen])
    return posterior


def with_found_params(router: Any) -> Any:
    """Return an unfitted copy whose ``"cv"`` parameters are set to the selected values."""
    selected = {
        name: getattr(router, f"{name}_", value)
        for name, value in router.get_params(deep=False).items()
        if _is_searched(value)
    }
    return clone(router).set_params(**selected)


def _is_searched(value: Any) -> bool:
    return isinstance(value, str) and value == "cv"
