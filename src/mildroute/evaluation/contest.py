"""Routers side by side on the same rows: encoded once, each fitted on the train side, asked on the test side."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from mildroute.errors import ArgumentError, ShapeError
from mildroute.evaluation.checks import Choice, as_choice
from mildroute.evaluation.frontier import mix_shares, single_points
from mildroute.evaluation.metrics import best_single, dollars_per_1000, oracle

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.fitting import Target
    from mildroute.routers.operating import OperatingPoint

__all__ = ["BASELINES", "Progress", "Sides", "baseline_choices", "choice_at_target", "choice_of", "coin_keys", "encoded", "fold_encodings"]

Progress = Callable[[int, int, str], None]
"""Called with the number of finished steps, the number of all steps and the name of the step that comes next."""

BASELINES = ("best by score", "best single", "coin", "cheapest", "dearest", "random", "random at equal cost", "oracle")
"""Names of the rows that every comparison has; those of money only where dollars are known. The best single expert is the one of the lowest
cost at the price weight; beside it, the best by score and the coin between two experts stand only if there is a target."""


@dataclass(frozen=True)
class Sides:
    """Both sides of a split, with what the routers see of them.

    Attributes:
        train: The rows to learn from.
        test: The rows to be asked.
        seen: Vectors of the former.
        unseen: Vectors of the latter.
        price_weight: How much error a dollar is worth.
        latency_weight: How much error a second is worth.
        target: A budget or a quality that each router is operated for, or none.
        folds: Vectors of the train side by encoders that have not seen a fold, see :func:`fold_encodings`; or none.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]})
        >>> Sides(table.take([0]), table.take([1]), [[0.0]], [[1.0]]).costs(table).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
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
        """Costs of a side, shape (n, p), with or without its dollars."""
        return table.costs(price_weight=self.price_weight if priced else 0.0, latency_weight=self.latency_weight)


def encoded(table: CostTable, train: CostTable, test: CostTable, encoder: Any) -> tuple[Any, Any]:
    """Vectors of both sides, by an encoder fitted on the train side alone or from the rows of a matrix.

    Args:
        table: The table before the split.
        train: Its train side.
        test: Its test side.
        encoder: A transformer over inputs; or vectors of the whole table, shape (n, d); or none for the default encoder.

    Returns:
        Vectors of the train and of the test side.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]})
        >>> [side.tolist() for side in encoded(table, table.take([1]), table.take([0]), np.array([[0.0], [1.0]]))]
        [[[1.0]], [[0.0]]]
    """
    if encoder is not None and not hasattr(encoder, "transform"):
        return _rows_of(encoder, table, train), _rows_of(encoder, table, test)
    if train.inputs is None:
        raise ArgumentError("the table must have inputs to be encoded, got none; pass the vectors of its rows, shape (n, d), instead.")
    fresh = _default_encoder() if encoder is None else clone(encoder)
    return fresh.fit_transform(train.inputs), fresh.transform(test.inputs)


def fold_encodings(train: CostTable, seen: Any, encoder: Any, seed: int) -> Any:
    """Vectors of the train side by encoders that have not seen a fold, or none where ``seen`` may be cut into folds.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 0], "score:b": [0, 1]})
        >>> fold_encodings(table, np.eye(2), np.eye(2), 0) is None  # vectors that were given owe nothing to these rows
        True
    """
    from mildroute.encoders.text_router import fold_vectors
    from mildroute.routers.frontier import FrontierRouter

    if train.inputs is None or (encoder is not None and not hasattr(encoder, "transform")):
        return None
    fresh = _default_encoder() if encoder is None else clone(encoder)
    return fold_vectors(fresh, train.inputs, seen, FrontierRouter(random_state=seed))


def choice_at_target(router: Any, sides: Sides, seed: int = 0) -> tuple[Choice, float, OperatingPoint]:
    """Fit a router along all prices on the train side, put it on its own frontier, and ask it at the point for the target.

    Args:
        router: An estimator over vectors, or a FrontierRouter.
        sides: The rows, with dollars and a target.
        seed: Of folds and coins.

    Returns:
        Choice of shape (n,), seconds to fit, and the operating point.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.evaluation.fitting import Target
        >>> from mildroute.routers.single import BestSingleRouter
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 1], "score:b": [0, 1], "cost:a": [1, 1], "cost:b": [1, 1]})
        >>> choice_at_target(BestSingleRouter(), Sides(table, table, np.eye(2), np.eye(2), target=Target("quality", 1.0)))[0]
        array([0, 0])
    """
    from mildroute.evaluation.fitting import operating_point, price_grid
    from mildroute.routers.frontier import FrontierRouter

    if _reads_inputs(router):
        raise ArgumentError(f"a target is for routers over vectors, got {type(router).__name__}; leave the encoder to the comparison.")
    dollars = sides.train.dollars
    if dollars is None or sides.target is None:
        raise ArgumentError("a target needs dollars, got a table without 'cost:<expert>' columns; give prices, or no target.")
    started = perf_counter()
    settings: dict[str, Any] = {"price_weights": price_grid(dollars), "random_state": seed}
    fitted = clone(router).set_params(**settings) if isinstance(router, FrontierRouter) else FrontierRouter(router=router, **settings)
    fitted.fit(sides.seen, sides.costs(sides.train, priced=False), prices=dollars, groups=sides.train.groups, folds=sides.folds)
    seconds = perf_counter() - started
    point, _ = operating_point(fitted, sides.target)
    chosen = fitted.predict(sides.unseen, point=point, request_ids=coin_keys(sides.test))
    return as_choice(chosen, len(sides.test), len(sides.test.experts)), seconds, point


def coin_keys(table: CostTable) -> list[str]:
    """What seeds the coin of each row: its text, as where requests are served without ids, or its id where rows share a text.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> coin_keys(CostTable.of({"query_id": ["p", "q", "r"], "input": ["hi", "hi", "yes"], "score:a": [1, 1, 0], "score:b": [0, 1, 1]}))
        ['p', 'q', 'yes']
    """
    if table.inputs is None:
        return list(table.query_ids)
    times = Counter(table.inputs)
    return [text if times[text] == 1 else query for text, query in zip(table.inputs, table.query_ids, strict=True)]


def choice_of(router: Any, sides: Sides) -> tuple[Choice, float]:
    """Fit a copy of a router on the train side and ask it on the test side.

    A router is given the groups of the rows where its ``fit`` takes them. A router with a price weight of its own learns from errors and
    dollars apart and is asked at the weight of the comparison; one over texts is given the texts.

    Args:
        router: An estimator.
        sides: The rows.

    Returns:
        Choice of shape (n,), and seconds to fit.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.routers.single import BestSingleRouter
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 1], "score:b": [0, 1]})
        >>> choice, seconds = choice_of(BestSingleRouter(), Sides(table.take([0]), table.take([1]), [[0.0]], [[1.0]]))
        >>> choice
        array([0])
    """
    started = perf_counter()
    fitted, asked = _fitted(clone(router), sides)
    seconds = perf_counter() - started
    extra = {"price_weight": sides.price_weight} if _weighs_prices(fitted) else {}
    return as_choice(fitted.predict(asked, **extra), len(sides.test), len(sides.test.experts)), seconds


def baseline_choices(sides: Sides, ours: Choice, seed: int) -> dict[str, Choice]:
    """What every router has to stand beside: single experts chosen on the train side, random draws, and the oracle of the test side.

    Args:
        sides: The rows; vectors are not looked at.
        ours: Choice of the default router, whose bill the second random draw has.
        seed: Seed of the draws.

    Returns:
        Choices of shape (n,) by name, see :data:`BASELINES`.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.of({"query_id": ["p", "q"], "score:a": [1, 1], "score:b": [0, 1]})
        >>> sorted(baseline_choices(Sides(table, table, None, None), np.array([0, 0]), seed=0))
        ['best single', 'oracle', 'random']
    """
    rows, experts = len(sides.test), len(sides.test.experts)
    rng = np.random.default_rng(seed)
    found = {
        "best single": _all_to(best_single(sides.costs(sides.train), sides.train.dollars), rows),
        "random": rng.integers(0, experts, size=rows),
        "oracle": oracle(sides.costs(sides.test), sides.test.dollars),
    }
    if sides.train.dollars is not None and sides.test.dollars is not None:
        bills = sides.train.dollars.mean(axis=0)
        singles = single_points(sides.train.scores, sides.train.dollars)
        # Scores of the train side, bills of the test side: who mixes does not know the test rows' outcomes, but must pay what we pay there.
        paid_there = single_points(sides.test.scores, sides.test.dollars)
        singles = tuple(replace(there, score=known.score) for there, known in zip(paid_there, singles, strict=True))
        bill = max(dollars_per_1000(sides.test.dollars, ours), min(point.dollars_per_1000 for point in singles))
        found["cheapest"], found["dearest"] = _all_to(int(bills.argmin()), rows), _all_to(int(bills.argmax()), rows)
        found["random at equal cost"] = rng.choice(experts, size=rows, p=mix_shares(singles, bill))
    if sides.target is not None and sides.train.dollars is not None:
        found["best by score"] = _all_to(best_single(-sides.train.scores, sides.train.dollars), rows)
        found["coin"] = rng.choice(experts, size=rows, p=_coin_shares(sides, sides.train.dollars))
    return {name: found[name] for name in BASELINES if name in found}


def _coin_shares(sides: Sides, dollars: Any) -> Any:
    """Shares of the experts between which a coin meets the target, as promised on the train side."""
    from mildroute.evaluation.fitting import resolve
    from mildroute.routers.operating import curve_of

    singles = curve_of(np.zeros(0), np.empty((0, len(sides.train)), dtype=np.intp), 1 - sides.train.scores, dollars)
    shares = np.clip(resolve(singles, sides.target).shares, 0.0, None)
    return shares / shares.sum()


def _all_to(expert: int, rows: int) -> Choice:
    return np.full(rows, expert, dtype=np.intp)


def _fitted(router: Any, sides: Sides) -> tuple[Any, Any]:
    """The fitted router and what it is to be asked."""
    known = inspect.signature(router.fit).parameters
    priced = _weighs_prices(router)
    given: dict[str, Any] = {}
    if "groups" in known and sides.train.groups is not None:
        given["groups"] = sides.train.groups
    if priced and sides.train.dollars is not None:
        given["prices"] = sides.train.dollars
    seen, unseen = (sides.train.inputs, sides.test.inputs) if _reads_inputs(router) else (sides.seen, sides.unseen)
    return router.fit(seen, sides.costs(sides.train, priced=not priced), **given), unseen


def _weighs_prices(router: Any) -> bool:
    from mildroute.routers.frontier import FrontierRouter

    return isinstance(router, FrontierRouter) or isinstance(getattr(router, "router", None), FrontierRouter)


def _reads_inputs(router: Any) -> bool:
    from mildroute.encoders.text_router import TextRouter

    return isinstance(router, TextRouter)


def _default_encoder() -> Any:
    from mildroute.encoders.text_router import DEFAULT_ENCODER

    return DEFAULT_ENCODER()


def _rows_of(vectors: Any, table: CostTable, side: CostTable) -> Any:
    matrix = vectors if hasattr(vectors, "shape") else np.asarray(vectors)
    if len(matrix.shape) != 2 or matrix.shape[0] != len(table):
        raise ShapeError(f"vectors must be ({len(table)}, d), one row per row of the table, got shape {matrix.shape}.")
    place = {query: row for row, query in enumerate(table.query_ids)}
    return matrix[[place[query] for query in side.query_ids]]
