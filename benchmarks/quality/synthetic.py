"""Task 10: scarce specialists with a known posterior, so that regret is exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RATIOS = (1, 3, 10, 30, 100, 300, 1000)
EXPERTS, WIDTH, TRAIN, TEST = 4, 32, 6000, 20_000


@dataclass(frozen=True)
class Sample:
    """Vectors (n, d), the winner of each row, the costs (n, p) and the true posterior (n, p)."""

    vectors: NDArray[np.float64]
    winners: NDArray[np.intp]
    costs: NDArray[np.float64]
    posterior: NDArray[np.float64]


def draw(ratio: int, rows: int, seed: int) -> Sample:
    """The first expert wins ``ratio`` times as often as each of the others.

    Winners' inputs are Gaussian around their own center.
    """
    centers = 3.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, EXPERTS)))[0].T
    prior = np.array([ratio, *[1] * (EXPERTS - 1)], dtype=np.float64)
    prior /= prior.sum()
    rng = np.random.default_rng(seed)
    winners = rng.choice(EXPERTS, size=rows, p=prior)
    vectors = centers[winners] + rng.normal(size=(rows, WIDTH))
    logits = np.log(prior) - ((vectors[:, None, :] - centers) ** 2).sum(axis=2) / 2
    posterior = np.exp(logits - logits.max(axis=1, keepdims=True))
    costs = 1.0 - np.eye(EXPERTS)[winners]
    return Sample(vectors, winners, costs, posterior / posterior.sum(axis=1, keepdims=True))


def regret(sample: Sample, choice: NDArray[np.intp]) -> float:
    """Expected cost of the choice above that of the Bayes choice."""
    return float(
        (sample.posterior.max(axis=1) - sample.posterior[np.arange(len(choice)), choice]).mean()
    )


def worst_recall(sample: Sample, choice: NDArray[np.intp]) -> float:
    """Lowest share, over experts, of the rows it wins that are sent to it."""
    return min(
        float((choice[sample.winners == expert] == expert).mean())
        for expert in np.unique(sample.winners)
    )
