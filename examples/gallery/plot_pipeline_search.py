"""
Pipelines and grid search
=========================

Routers are scikit-learn estimators: they sit at the end of a ``Pipeline``, and ``GridSearchCV``
tunes what comes before them. Here that
makes the difference between a router that sees nothing and one that finds the experts' own regions.
"""

# %%
# Experts in rings
# ----------------
# Three experts. The first is right near the middle, the second in a ring around it, the third
# everywhere, for a price. A router that is
# linear in the two coordinates cannot tell a ring from its surroundings.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mildroute.routers import BestSingleRouter, TDEFRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

random = np.random.default_rng(0)
X = random.uniform(-3, 3, size=(1500, 2))
radius = np.hypot(*X.T)
wrong = np.stack(
    [radius > 1.2, (radius <= 1.2) | (radius > 2.4), np.zeros(len(X), dtype=bool)], axis=1
)
noise = random.random(wrong.shape) < 0.05
costs = (wrong ^ noise) + np.array([0.0, 0.0, 0.25])
X_train, X_test, costs_train, costs_test = train_test_split(
    X, costs, test_size=1 / 3, random_state=0
)

# %%
# Tune the features, not only the router
# --------------------------------------
# The target ``y`` is the matrix of costs. A router's ``score`` is minus the mean cost of the
# experts it chooses, so that ``GridSearchCV``
# minimizes the figure that is paid in the end, and needs no scorer.

pipeline = make_pipeline(StandardScaler(), Nystroem(n_components=60, random_state=0), TDEFRouter())
grid = {
    "nystroem__gamma": [0.01, 0.1, 1.0, 10.0, 100.0],
    "tdefrouter__alpha": [1e-6, 1e-5, 1e-4, 1e-3, 1e-2],
}
search = GridSearchCV(pipeline, grid, cv=3).fit(X_train, costs_train)
print("chosen:", search.best_params_)

routers = {
    "best single expert": BestSingleRouter().fit(X_train, costs_train),
    "linear in the coordinates": (
        make_pipeline(StandardScaler(), TDEFRouter(random_state=0)).fit(X_train, costs_train)
    ),
    "tuned pipeline": search,
}
for name, router in routers.items():
    print(f"{name:26} costs {-router.score(X_test, costs_test):.3f}")
print(f"{'oracle':26} costs {costs_test.min(axis=1).mean():.3f}")

# %%
# The search, and what came of it
# -------------------------------
# On the left the mean cost on held-out folds: with a kernel of the wrong width or a penalty too
# strong there is no ring to be seen. In
# the middle what the plain linear router does, on the right the tuned pipeline. Each color is an
# expert.

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3.7), layout="constrained")
held_out = -search.cv_results_["mean_test_score"].reshape(5, 5)
left.imshow(held_out, cmap="Blues")
for (row, column), value in np.ndenumerate(held_out):
    left.text(
        column,
        row,
        f"{value:.2f}".lstrip("0"),
        ha="center",
        va="center",
        color="white" if value > 0.3 else "black",
        fontsize=9,
    )
left.set_xticks(
    range(5), [f"{alpha:.0e}".replace("e-0", "e-") for alpha in grid["tdefrouter__alpha"]]
)
left.set_yticks(range(5), grid["nystroem__gamma"])
left.set(
    title="Held-out cost of the search",
    xlabel="penalty of the router",
    ylabel="gamma of the kernel",
)
left.grid(visible=False)
across, up = np.meshgrid(*[np.linspace(-3, 3, 250)] * 2)
for axes, (name, router) in zip((middle, right), list(routers.items())[1:], strict=True):
    sent = router.predict(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
    axes.contourf(
        across, up, sent, levels=[-0.5, 0.5, 1.5, 2.5], colors=["C0", "C1", "C4"], alpha=0.6
    )
    for edge in (1.2, 2.4):
        axes.add_patch(plt.Circle((0, 0), edge, fill=False, color="black", linestyle="--"))
    axes.set(
        title=f"{name}: {-router.score(X_test, costs_test):.3f}",
        aspect="equal",
        xticks=[],
        yticks=[],
    )

# %%
# What to take away
# -----------------
# Features matter more than the choice of the loss. ``MildRouter`` tries topic features of its own
# by cross-validation; a pipeline lets
# you try any others. Beware of tuning on few rows: the winner of 25 candidates looks a little
# better on its folds than it is, so that a
# figure to be trusted comes from rows that the search has not seen, as it does here.
plt.show()
