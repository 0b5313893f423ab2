"""
Calibration of router probabilities
===================================

A router says how likely each expert is to be the best one. Thresholds, fallbacks and alarms lean on
that number. A reliability diagram
shows whether it can be taken at its word.
"""

# %%
# Two experts and a known truth
# -----------------------------
# The second expert is the better one on one input in eight. Its true chance depends on two of
# twenty features; the other eighteen are
# noise, which invites a router to be surer than it should be. Each router learns from 400 rows,
# five times over.

import matplotlib.pyplot as plt
import numpy as np

from mildroute.evaluation import brier_score, calibration_error
from mildroute.routers import (
    CrossEntropyRouter,
    MildRouter,
    PaperMILDRouter,
    WeightedCrossEntropyRouter,
)

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])


def draw(rows, seed):
    """Inputs, costs, and the true chance that the second expert is the better one."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 20))
    chance = 1 / (1 + np.exp(-(2.5 * X[:, 0] + 1.5 * X[:, 1] - 4)))
    wins = random.random(rows) < chance
    return X, np.stack([wins, ~wins], axis=1).astype(float), chance


routers = {
    "MildRouter": MildRouter(features="raw", random_state=0),
    "cross-entropy, hardly penalized": CrossEntropyRouter(alpha=1e-6),
    "weighted cross-entropy": WeightedCrossEntropyRouter(random_state=0),
    "MILD, winner counts": PaperMILDRouter(margins="winner_counts", random_state=0),
}
X_test, costs_test, chance = draw(10_000, seed=99)
print(f"the second expert is the better one on {chance.mean():.1%} of the inputs")
beliefs = {
    name: [router.fit(*draw(400, seed)[:2]).predict_proba(X_test) for seed in range(5)]
    for name, router in routers.items()
}

# %%
# Believed and true
# -----------------
# Inputs are put into ten bins by the probability that the router gives the rare expert. On the
# diagonal, where it says 30% the expert
# wins 30% of the time. Above the diagonal the expert is underrated, below it overrated. Bins of
# fewer than 100 inputs are left out.

figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
axes.plot([0, 1], [0, 1], color="0.6", linestyle="--")
truth = np.tile(chance, 5)
for colour, (name, found) in zip(("C0", "C2", "C3", "0.5"), beliefs.items(), strict=True):
    believed = np.concatenate(found)[:, 1]
    place = np.minimum((10 * believed).astype(int), 9)
    filled = [number for number in range(10) if (place == number).sum() >= 100]
    points = [[values[place == number].mean() for number in filled] for values in (believed, truth)]
    axes.plot(
        *points, "o-", color=colour, label=name, linewidth=2.8 if name == "MildRouter" else 1.5
    )
axes.set(
    title="The rare expert's chance, believed and true",
    xlabel="probability that the router gives it",
    ylabel="how often it is the better one",
)
axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
axes.legend(loc="upper left", frameon=True)

# %%
# The same in figures. Calibration error is the mean distance to the diagonal, for the expert that
# is chosen; the Brier score also asks
# whether the router distinguishes inputs; regret is what its choices cost beyond the best possible
# ones.

for name, found in beliefs.items():
    regret = np.mean(
        [
            (np.abs(2 * chance - 1) * (belief.argmax(axis=1) != (chance > 0.5))).mean()
            for belief in found
        ]
    )
    error, brier = (
        np.mean([figure_of(belief, costs_test) for belief in found])
        for figure_of in (calibration_error, brier_score)
    )
    print(
        f"{name:32} calibration error {error:.3f}   Brier score {brier:.3f}   regret {regret:.4f}"
    )

# %%
# What to take away
# -----------------
# ``MildRouter`` calibrates its scores on the held-out rows of its own search, and lies near the
# diagonal. A fit that is hardly penalized
# is too sure of the rare expert. Weights that lift the rare expert in training are still in the
# probabilities afterwards, so that it is
# overrated everywhere. The softmax of MILD with winner counts bends the other way. Its choices are
# as good here all the same: calibration and a
# good choice are two things. But a number that will get a threshold should mean what it
# says.
plt.show()
