"""Held-out choices of routers, which are fitted on one side of a split and applied to the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from mildroute.evaluation.arrays import Choice, as_choice
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._folds import cluster_codes
from mildroute.routers.base import RouterMixin

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.routers.frontier.operating_point import OperatingPoint
    from mildroute.routers.frontier.target import Target

__all__ = ["Split", "choice_at_target", "choice_of", "encoded", "fold_encodings", "request_keys"]


@dataclass(frozen=True)
class Split:
    """The two sides of a split, in the form that routers use.

    Attributes:
        target: A budget or a quality that each router operates at, or `None`.
        folds: Vectors of the train side by encoders that were not trained on a fold, see
            :func:`fold_encodings`; or `None`.
    """

    train: CostTable
    test: CostTable
    seen: Any
    unseen: Any
    price_weight: float = 0.0
    latency_weight: float = 0.0
    target: Target | None = None
    folds: Any = None

    def costs(self, table: CostTable, *, priced: bool = True) -> Any:
        """Return the costs of a side, shape (n, p), with or without its dollars."""
        return table.costs(
            price_weight=self.price_weight if priced else 0.0, latency_weight=self.latency_weight
        )


def encoded(table: CostTable, train: CostTable, test: CostTable, encoder: Any) -> tuple[Any, Any]:
    """Return vectors of both sides, by an encoder or from the rows of a matrix.

    An encoder is fitted on the train side only.

    Args:
        table: The table before the split.
        train: Train side of the table.
        test: Test side of the table.
        encoder: A transformer over inputs; or vectors of the whole table, shape (n, d); or `None`
            for the default encoder.

    Returns:
        Vectors of the train and of the test side.
    """
    if encoder is not None and not hasattr(encoder, "transform"):
        return _rows_of(encoder, table, train), _rows_of(encoder, table, test)
    if train.inputs is None:
        raise ArgumentError(
            "the table must have inputs to be encoded, got none; pass the vectors of its rows,"
            " shape (n, d), instead."
        )
    fresh = _default_encoder() if encoder is None else clone(encoder)
    return fresh.fit_transform(train.inputs), fresh.transform(test.inputs)


def fold_encodings(train: CostTable, seen: Any, encoder: Any, seed: int) -> Any:
    """Return vectors of the train side by encoders that were not trained on a fold.

    Return `None` if ``seen`` itself may be cut into folds.
    """
    from mildroute.fitting.fold_vectors import fold_vectors
    from mildroute.routers.frontier.router import FrontierRouter

    if train.inputs is None or (encoder is not None and not hasattr(encoder, "transform")):
        return None
    fresh = _default_encoder() if encoder is None else clone(encoder)
    codes = cluster_codes(train.clusters.codes, len(train))
    return fold_vectors(fresh, train.inputs, seen, FrontierRouter(random_state=seed), codes)


def choice_at_target(
    router: Any, sides: Split, seed: int = 0
) -> tuple[Choice, float, OperatingPoint]:
    """Fit a router along all prices, and use it at the point for the target.

    The router is fitted on the train side, and the point lies on the router's own frontier.

    Args:
        router: An estimator over vectors, or a FrontierRouter.
        sides: The rows, with dollars and a target.
        seed: Seed of folds and random mixes.

    Returns:
        Choice of shape (n,), seconds to fit, and the operating point.
    """
    from mildroute.fitting.targets import default_price_weights, operating_point
    from mildroute.routers.frontier.router import FrontierRouter

    if _reads_inputs(router):
        raise ArgumentError(
            f"a target is for routers over vectors, got {type(router).__name__}; leave the encoder"
            " to the comparison."
        )
    dollars = sides.train.dollars
    if dollars is None or sides.target is None:
        raise ArgumentError(
            "a target needs dollars, got a table without 'cost:<expert>' columns; give prices, or"
            " no target."
        )
    started = perf_counter()
    settings: dict[str, Any] = {
        "price_weights": default_price_weights(dollars),
        "random_state": seed,
    }
    fitted = (
        clone(router).set_params(**settings)
        if isinstance(router, FrontierRouter)
        else FrontierRouter(router=router, **settings)
    )
    fitted.fit_rows(
        fitted.training_rows(
            sides.seen,
            sides.costs(sides.train, priced=False),
            prices=dollars,
            groups=sides.train.groups,
            folds=sides.folds,
            clusters=sides.train.clusters.codes,
        )
    )
    seconds = perf_counter() - started
    point, _ = operating_point(fitted, sides.target)
    chosen = fitted.predict(sides.unseen, point=point, request_ids=request_keys(sides.test))
    return as_choice(chosen, len(sides.test), len(sides.test.experts)), seconds, point


def request_keys(table: CostTable) -> list[str]:
    """Return the key that seeds the random mix on each row.

    The key is the text, as for requests without ids, or the id if rows share a text.
    """
    if table.inputs is None:
        return list(table.query_ids)
    times = Counter(table.inputs)
    return [
        text if times[text] == 1 else query
        for text, query in zip(table.inputs, table.query_ids, strict=True)
    ]


def choice_of(router: Any, sides: Split) -> tuple[Choice, float]:
    """Fit a copy of a router on the train side and apply it to the test side.

    A router receives the groups of the rows if its ``fit`` accepts them. A router with its own
    price weight learns from errors and dollars separately and decides at the weight of the
    comparison. A router over texts receives the texts.

    Returns:
        Choice of shape (n,), and seconds to fit.
    """
    started = perf_counter()
    fitted, asked = _fitted(clone(router), sides)
    seconds = perf_counter() - started
    extra = {"price_weight": sides.price_weight} if _weighs_prices(fitted) else {}
    return (
        as_choice(fitted.predict(asked, **extra), len(sides.test), len(sides.test.experts)),
        seconds,
    )


def _fitted(router: Any, sides: Split) -> tuple[Any, Any]:
    """Return the fitted router and the inputs for its choices."""
    train = sides.train
    weighs_prices = _weighs_prices(router)
    costs = sides.costs(train, priced=not weighs_prices)
    prices = train.dollars if weighs_prices else None
    if _reads_inputs(router):
        router.fit(
            train.inputs, costs, groups=train.groups, prices=prices, clusters=train.clusters.codes
        )
        return router, sides.test.inputs
    if not isinstance(router, RouterMixin):  # a pipeline, or an estimator of another package
        return router.fit(sides.seen, costs), sides.unseen
    rows = router.training_rows(
        sides.seen, costs, groups=train.groups, prices=prices, clusters=train.clusters.codes
    )
    return router.fit_rows(rows), sides.unseen


def _weighs_prices(router: Any) -> bool:
    from mildroute.routers.frontier.router import FrontierRouter

    return isinstance(router, FrontierRouter) or (
        _reads_inputs(router) and isinstance(router.router, FrontierRouter)
    )


def _reads_inputs(router: Any) -> bool:
    from mildroute.fitting.text_router import TextRouter

    return isinstance(router, TextRouter)


def _default_encoder() -> Any:
    from mildroute.fitting.text_router import DEFAULT_ENCODER

    return DEFAULT_ENCODER()


def _rows_of(vectors: Any, table: CostTable, side: CostTable) -> Any:
    matrix = vectors if hasattr(vectors, "shape") else np.asarray(vectors)
    if len(matrix.shape) != 2 or matrix.shape[0] != len(table):
        raise ShapeError(
            f"vectors must be ({len(table)}, d), one row per row of the table, got shape"
            f" {matrix.shape}."
        )
    row_of = {query: row for row, query in enumerate(table.query_ids)}
    return matrix[[row_of[query] for query in side.query_ids]]
