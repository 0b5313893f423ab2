"""The choices of the baselines that every router is compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mildroute.evaluation.arrays import Choice
from mildroute.evaluation.cost_quality import mix_shares, single_points
from mildroute.evaluation.held_out_choices import Split
from mildroute.evaluation.metrics import best_single, dollars_per_1000, oracle
from mildroute.routers._folds import cluster_codes

__all__ = ["BASELINES", "baseline_choices"]

# Names of the rows that every comparison has; those about money only if dollars are known. The best
# single expert is the one with the lowest cost at the price weight. The expert with the highest
# score and the random mix of two experts are added only if there is a target.
BASELINES = (
    "best in the table",
    "best single",
    "random mix of two",
    "cheapest",
    "most expensive",
    "random",
    "random at equal cost",
    "oracle",
)


def baseline_choices(sides: Split, ours: Choice, seed: int) -> dict[str, Choice]:
    """Return the choices of the baselines that every router is compared with.

    They are single experts chosen on the train side, random draws, and the oracle of the test side.

    Args:
        sides: The rows; vectors are not used.
        ours: Choice of the default router; the second random draw has the same bill.
        seed: Seed of the draws.

    Returns:
        Choices of shape (n,) by name, see :data:`BASELINES`.
    """
    rows, experts = len(sides.test), len(sides.test.experts)
    rng = np.random.default_rng(seed)
    choices = {
        "best single": _all_to(best_single(sides.costs(sides.train), sides.train.dollars), rows),
        "random": rng.integers(0, experts, size=rows),
        "oracle": oracle(sides.costs(sides.test), sides.test.dollars),
    }
    if sides.train.dollars is not None and sides.test.dollars is not None:
        bills = sides.train.dollars.mean(axis=0)
        singles = single_points(sides.train.scores, sides.train.dollars)
        # Scores of the train side, bills of the test side: the mix cannot know the outcomes of the
        # test rows, but must cost what ours costs there.
        paid_there = single_points(sides.test.scores, sides.test.dollars)
        singles = tuple(
            replace(at_test, score=at_train.score)
            for at_test, at_train in zip(paid_there, singles, strict=True)
        )
        bill = max(
            dollars_per_1000(sides.test.dollars, ours),
            min(point.dollars_per_1000 for point in singles),
        )
        choices["cheapest"], choices["most expensive"] = (
            _all_to(int(bills.argmin()), rows),
            _all_to(int(bills.argmax()), rows),
        )
        choices["random at equal cost"] = rng.choice(
            experts, size=rows, p=mix_shares(singles, bill)
        )
    if sides.target is not None and sides.train.dollars is not None:
        choices["best in the table"] = _all_to(
            best_single(-sides.train.scores, sides.train.dollars), rows
        )
        choices["random mix of two"] = rng.choice(
            experts, size=rows, p=_random_mix_shares(sides, sides.train.dollars)
        )
    return {name: choices[name] for name in BASELINES if name in choices}


def _random_mix_shares(sides: Split, dollars: Any) -> Any:
    """Return the shares of the experts whose random mix meets the target on the train side."""
    from mildroute.fitting.targets import resolve
    from mildroute.routers.frontier.measurement import measure_curve

    singles = measure_curve(
        np.zeros(0),
        np.empty((0, len(sides.train)), dtype=np.intp),
        1 - sides.train.scores,
        dollars,
        clusters=cluster_codes(sides.train.clusters.codes, len(sides.train)),
    )
    shares = np.clip(resolve(singles, sides.target).shares, 0.0, None)
    return shares / shares.sum()


def _all_to(expert: int, rows: int) -> Choice:
    return np.full(rows, expert, dtype=np.intp)
