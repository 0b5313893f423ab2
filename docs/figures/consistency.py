"""Regret of a decision against the surrogate regret of its scores, for both decisions.

Posteriors and margins are random.
"""

from __future__ import annotations

import numpy as np
from drawing import GREY, OURS, canvas, save
from numpy.typing import NDArray

from mildroute.routers._decision import log_posterior
from mildroute.routers._deferral_loss import deferral_row_loss

DRAWS, ROWS, RATIO = 400, 120, 10.0


def draw(rng: np.random.Generator) -> NDArray[np.float64]:
    """Columns.

    Square root of twice the surrogate regret, margin ratio, experts, regret when decoded, regret by
    the largest score.

    Scores minimize the surrogate of the posterior that they decode to, so no optimizer is needed:
    draw scores, decode, disturb them.
    """
    experts = int(rng.integers(2, 9))
    margins = RATIO ** rng.random(experts)
    best = margins.mean() * rng.normal(size=(ROWS, experts))
    truth = np.exp(log_posterior(best, margins))
    loss = deferral_row_loss(truth, margins)
    other = best + 10 ** rng.uniform(-2, 1, size=(ROWS, 1)) * margins.mean() * rng.normal(
        size=(ROWS, experts)
    )
    excess = np.maximum(loss(other)[0] - loss(best)[0], 0)
    chosen = [log_posterior(other, margins).argmax(axis=1), other.argmax(axis=1)]
    regrets = [truth.max(axis=1) - truth[np.arange(ROWS), choice] for choice in chosen]
    shape = np.full(ROWS, margins.max() / margins.min()), np.full(ROWS, experts)
    return np.stack([np.sqrt(2 * excess), *shape, *regrets], axis=1)


def main() -> None:
    """Draw it."""
    rng = np.random.default_rng(0)
    allowed, ratio, experts, decoded, largest = np.concatenate([draw(rng) for _ in range(DRAWS)]).T
    wrong = decoded > 1e-9
    print(
        f"{len(allowed)} cases; above the paper's bound: largest score"
        f" {np.mean(largest > allowed + 1e-9):.1%}",
        end=", ",
    )
    print(f"decoded {np.mean(decoded > allowed + 1e-9):.2%}; decoded regret at most")
    for name, factor in (
        ("the paper's bound", 1.0),
        ("a times it", ratio),
        ("p a times it", ratio * experts),
    ):
        print(f"  {(decoded / (factor * allowed))[wrong].max():.2f} of {name}")
    figure, axes = canvas(6.4, 5.0)
    axes.plot(
        allowed, largest, ".", color=GREY, markersize=3, label="largest score", rasterized=True
    )
    axes.plot(
        allowed, decoded, ".", color=OURS, markersize=3, label="decoded posterior", rasterized=True
    )
    axes.plot([0, 1], [0, 1], color="black", label="the paper's bound")
    axes.set(
        xlim=(0, 1),
        ylim=(0.001, 1),
        xlabel="$\\sqrt{2 \\varepsilon}$, from the surrogate regret",
        ylabel="regret of the decision",
    )
    axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), markerscale=4)
    save(figure, __file__, "png")


if __name__ == "__main__":
    main()
