"""Regret against the penalty for three directions of the margins.

The truth is known, and specialists are scarce.
"""

from __future__ import annotations

import sys

import numpy as np
from drawing import BLUE, GOLD, OURS, ROOT, canvas, save
from numpy.typing import NDArray

from mildroute.routers import MildRouter
from mildroute.routers._rewards import MarginRule, margins_by

sys.path.insert(0, str(ROOT / "benchmarks" / "quality"))
from synthetic import TEST, TRAIN, draw, regret

RATIO, SEEDS = 30, range(5)
ALPHAS = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
POWERS = {
    -1 / 6: ("-1/6, wider for the scarce", BLUE),
    0.0: ("0, equal", OURS),
    1 / 3: ("1/3, the paper's", GOLD),
}


def regrets(power: float, alpha: float) -> NDArray[np.float64]:
    """Regret x 1000 of the consistent decision and of the largest score, means over the seeds."""
    found = []
    for seed in SEEDS:
        train, test = draw(RATIO, TRAIN, seed), draw(RATIO, TEST, 1000 + seed)
        rho = margins_by(MarginRule("decided_wins", power), 1 - train.costs)
        router = MildRouter(
            reward="gap", margins=rho / rho.mean(), alpha=alpha, features="raw"
        ).fit(train.vectors, train.costs)
        scores = router.decision_function(test.vectors)
        found.append(
            [regret(test, router.predict(test.vectors)), regret(test, scores.argmax(axis=1))]
        )
    return np.asarray(1000 * np.mean(found, axis=0))


def main() -> None:
    """Draw it."""
    figure, axes = canvas(6.4, 5.4)
    for power, (label, colour) in POWERS.items():
        found = np.array([regrets(power, alpha) for alpha in ALPHAS])
        axes.plot(ALPHAS, found[:, 0], "o-", color=colour, label=label)
        axes.plot(ALPHAS, found[:, 1], ":", color=colour)
        print(label, "consistent", found[:, 0].round(2), "largest score", found[:, 1].round(2))
    axes.set(xscale="log", yscale="log", xlabel="alpha", ylabel="regret x 1000 (log)")
    axes.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    axes.minorticks_off()
    axes.legend(
        title="power of the wins (dotted: largest score)",
        loc="lower center",
        bbox_to_anchor=(0.45, 1.0),
    )
    save(figure, __file__)


if __name__ == "__main__":
    main()
