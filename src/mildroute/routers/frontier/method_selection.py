"""Selection of a frontier's method.

``candidate_methods`` decides before the fit whether ``MildRouter`` is worth its time in addition to
cost regression. ``select_method`` keeps the simplest method whose held-out frontier is within one
standard error of the best.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from mildroute.routers._search import REGRESSION
from mildroute.routers.frontier.folds import FEWEST_ROWS, MeasuredMethod
from mildroute.routers.mild import MildRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.training_rows import TrainingRows

__all__ = ["candidate_methods", "select_method"]

# Number of rows used to decide whether the surrogate losses are worth fitting along the grid.
_SAMPLE = 1000


def candidate_methods(
    router: Any,
    rows: TrainingRows,
    grid: NDArray[np.float64],
    *,
    thorough: bool | Literal["auto"],
    random_state: int | None,
) -> list[Any]:
    """Return the unfitted routers to fit along a grid of price weights, the simplest first.

    Args:
        router: The only candidate, or `None` for cost regression and perhaps ``MildRouter``.
        rows: The training rows.
        grid: Price weights, shape (G,).
        thorough: Whether ``MildRouter`` is a candidate. ``"auto"`` means that it is one if one of
            its surrogate losses wins on a sample of the rows.
        random_state: Seed of the candidates.
    """
    if router is not None:
        router.check_repeated_fits()
        return [router]
    regression = RegressionRouter(features="average", contrasts=True, random_state=random_state)
    mild = MildRouter(random_state=random_state)
    is_thorough = _surrogate_wins(mild, rows, grid) if thorough == "auto" else thorough
    return [regression, mild] if is_thorough else [regression]


def select_method(methods: list[MeasuredMethod]) -> tuple[MeasuredMethod, str]:
    """Return the method with the best frontier, and the reason.

    An earlier, simpler method is preferred if it is within one standard error of the best.
    """
    gains = [method.curve.gain for method in methods]
    best = int(np.argmax([gain for gain, _ in gains]))
    selected = next(
        index
        for index, (gain, _) in enumerate(gains)
        if gain >= gains[best][0] - gains[best][1] or index == best
    )
    method = methods[selected]
    gain, error = gains[selected]
    if gain <= 0:
        return (
            method,
            "no method is better than a random mix of single experts on held-out rows",
        )
    rivals = (
        ""
        if len(methods) == 1
        else f", the simplest within one standard error of the best of {len(methods)} methods"
    )
    words = (
        f"{method.name}{rivals}: on average {100 * gain:.1f} points of score above the best"
        " random mix of experts for the same bill"
    )
    return method, f"{words} (standard error {100 * error:.1f})"


def _surrogate_wins(router: MildRouter, rows: TrainingRows, grid: NDArray[np.float64]) -> bool:
    """Return whether a surrogate loss is clearly better than cost regression on some rows.

    The two are compared at the middle of the grid.
    """
    count, experts = rows.costs.shape
    if experts == 1 or count < FEWEST_ROWS:
        return False
    chosen = np.sort(np.random.default_rng(0).permutation(count)[:_SAMPLE])
    part = rows.take(chosen, rows.X)
    results = clone(router).fit_rows(part.at_price(grid[len(grid) // 2])).cv_results_
    costs: dict[bool, float] = {}
    for view, reward, mean in zip(
        results["view"], results["reward"], results["mean_cost"], strict=True
    ):
        if view != "none":
            costs[reward == REGRESSION] = min(mean, costs.get(reward == REGRESSION, np.inf))
    # The costs of two routers on the same rows are correlated: half of one's standard error is
    # about the standard error of their difference.
    return costs.get(True, np.inf) - costs.get(False, np.inf) > max(results["standard_error"]) / 2
