"""The margin bounds beside what a router really pays, as the sample grows.

The distribution is known.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
import torch
from drawing import BLUE, GOLD, OURS, ROOT, canvas, save

from mildroute.losses import deferral_margin_bound
from mildroute.routers import MildRouter

sys.path.insert(0, str(ROOT / "benchmarks" / "quality"))
from synthetic import EXPERTS, TEST, draw

RATIO, PENALTY = 10, 1e-3
SIZES = (1000, 3000, 10_000, 30_000, 100_000, 300_000)


@dataclass(frozen=True)
class Fit:
    """Scores, rewards, norms and test cost of one fitted router."""

    scores: torch.Tensor
    rewards: torch.Tensor
    row_norms: torch.Tensor
    weight_norm: float
    paid: float

    def bound(self, constant: str) -> float:
        """Lowest bound over sixty sizes of equal margins."""
        totals = [self.at(margin, constant) for margin in np.geomspace(0.1, 1e4, 60)]
        return min(totals)

    def at(self, margin: float, constant: str) -> float:
        """The bound for equal margins of that size."""
        rho = torch.full((EXPERTS,), margin, dtype=torch.float64)
        norms = {"weight_norm": self.weight_norm, "row_norms": self.row_norms}
        return float(
            deferral_margin_bound(self.scores, self.rewards, rho, **norms, constant=constant).total
        )  # type: ignore[arg-type]


def fitted(rows: int) -> Fit:
    """A linear router on that many rows of task 10 of the quality benchmark."""
    train, test = draw(RATIO, rows, 0), draw(RATIO, TEST, 1)
    router = MildRouter(reward="gap", margins="uniform", alpha=PENALTY, features="raw").fit(
        train.vectors, train.costs
    )
    paid = test.costs[np.arange(TEST), router.predict(test.vectors)].mean()
    weights = np.vstack([np.asarray(router.weights_), router.intercept_])
    weights -= weights.mean(
        axis=1, keepdims=True
    )  # a constant of all experts changes no choice, and so the norm need not pay for it
    inputs = np.hstack([train.vectors, np.ones((rows, 1))])
    norm = float(np.linalg.norm(weights))
    return Fit(
        torch.from_numpy(inputs @ weights),
        torch.from_numpy(1 - train.costs),
        torch.from_numpy(np.linalg.norm(inputs, axis=1)),
        norm,
        paid,
    )


def main() -> None:
    """Draw it."""
    fits = [fitted(rows) for rows in SIZES]
    curves = {
        "paper's constant": [fit.bound("paper") for fit in fits],
        "sharp constant": [fit.bound("sharp") for fit in fits],
    }
    curves["paid on new rows"] = [fit.paid for fit in fits]
    figure, axes = canvas(6.4, 4.8)
    for (name, values), colour in zip(curves.items(), (BLUE, GOLD, OURS), strict=True):
        axes.plot(SIZES, values, "o-", color=colour, label=name)
        print(name, np.round(values, 3))
    axes.axhline(1, color="black", lw=1, ls=":")
    axes.annotate(
        "above this line a bound says nothing",
        (SIZES[-1], 1),
        (0, 5),
        textcoords="offset points",
        ha="right",
    )
    axes.set(xscale="log", ylim=(0, 1.25), xlabel="training rows (log)", ylabel="expected cost")
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0))
    save(figure, __file__)


if __name__ == "__main__":
    main()
