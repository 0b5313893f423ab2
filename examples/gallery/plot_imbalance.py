"""
Imbalance: one expert is nearly always best
===========================================

A generalist is best on most inputs; three specialists are best on a few each. The rarer they are,
the more a router is tempted to forget
them. Here the truth is known, so it can be seen who forgets them too early.
"""

# %%
# A world with a known answer
# ---------------------------
# Each expert's inputs lie around a center of their own. The generalist's are ``ratio`` times as
# many as a specialist's. Knowing that, the
# chance of each expert to be the best one can be computed exactly, and with it the best choice that
# anybody could make.

import matplotlib.pyplot as plt
import numpy as np

from mildroute.routers import (
    KNNRouter,
    MildRouter,
    PaperMILDRouter,
    TDEFRouter,
    WeightedCrossEntropyRouter,
)

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

EXPERTS, WIDTH = 4, 32
centers = 3.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, EXPERTS)))[0].T


def draw(ratio, rows, seed):
    """Inputs (n, d), the best expert of each (n,) and the true chance of each expert to be the best
    one (n, p).
    """
    random = np.random.default_rng(seed)
    prior = np.array([ratio, 1, 1, 1]) / (ratio + 3)
    best = random.choice(EXPERTS, size=rows, p=prior)
    X = centers[best] + random.normal(size=(rows, WIDTH))
    odds = np.log(prior) - ((X[:, None] - centers) ** 2).sum(axis=2) / 2
    chances = np.exp(odds - odds.max(axis=1, keepdims=True))
    return X, best, chances / chances.sum(axis=1, keepdims=True)


# %%
# Five routers
# ------------
# Each learns from 3,000 rows, and tunes its penalty or its number of neighbors on held-out ones.
# TDEF minimizes the usual surrogate;
# with costs of 0 and 1 it is cross-entropy. Weighted cross-entropy lifts rare experts by the
# inverse of their share, the common remedy
# for imbalance.

routers = {
    "MildRouter": MildRouter(features="raw", reward="gap", random_state=0),
    "TDEF": TDEFRouter(random_state=0),
    "nearest neighbors": KNNRouter(),
    "weighted cross-entropy": WeightedCrossEntropyRouter(random_state=0),
    "MILD, winner counts": PaperMILDRouter(margins="winner_counts", random_state=0),
}
ratios = (1, 10, 100, 300)
recall, regret = np.zeros((len(routers) + 1, len(ratios))), np.zeros((len(routers), len(ratios)))
for column, ratio in enumerate(ratios):
    X, best, _ = draw(ratio, 3000, seed=1)
    X_test, best_test, chances = draw(ratio, 5000, seed=2)
    rare = best_test > 0
    recall[-1, column] = (chances.argmax(axis=1) == best_test)[rare].mean()
    for row, router in enumerate(routers.values()):
        choice = router.fit(X, 1.0 - np.eye(EXPERTS)[best]).predict(X_test)
        recall[row, column] = (choice == best_test)[rare].mean()
        regret[row, column] = (chances.max(axis=1) - chances[np.arange(len(choice)), choice]).mean()

# %%
# Who remembers the specialists
# -----------------------------
# On the left, how many of the specialists' inputs are sent to the right specialist; the black line
# is what the best possible choice
# reaches. On the right, what all mistakes together cost beyond it.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.6), layout="constrained")
for row, (name, colour) in enumerate(zip(routers, ("C0", "C1", "C2", "C3", "0.6"), strict=True)):
    width = 2.8 if name == "MildRouter" else 1.5
    left.plot(ratios, 100 * recall[row], "o-", color=colour, linewidth=width)
    right.plot(ratios, regret[row], "o-", color=colour, linewidth=width, label=name)
left.plot(ratios, 100 * recall[-1], "k:", label="best possible choice")
left.set(
    xscale="log",
    xlabel="generalist's inputs for each of a specialist's",
    ylabel="% of specialists' inputs sent to them",
)
left.set_title("Specialists are forgotten as they get rare")
right.set(
    xscale="log",
    yscale="log",
    xlabel="generalist's inputs for each of a specialist's",
    ylabel="cost beyond the best choice",
)
right.set_title("What the mistakes cost")
for axes in (left, right):
    axes.set_xticks(ratios, ratios)
    axes.minorticks_off()
figure.legend(loc="outside lower center", ncols=3)

# %%
# What to take away
# -----------------
# Ordinary routers drop specialists sooner than the best choice would, nearest neighbors first of
# all. Weighting remembers them, at the
# price of many false alarms: its mistakes cost several times those of ``MildRouter``. MILD with
# untuned margins of winner counts sends nearly everything
# to specialists, since with margins that differ the largest score is not the best choice: see
# :ref:`sphx_glr_gallery_plot_decision_rule.py`. ``MildRouter`` comes closest. It falls behind the
# best choice as well where specialists
# are rarest: ten rows of each are not much to learn from.
plt.show()
