"""
Custom loss
===========

A router minimizes a loss in place of the cost itself, and the loss decides what it does about rows
that fit no straight line. Yours can
be any function of scores and costs written in PyTorch.
"""

# %%
# A judge that broke
# ------------------
# Two experts, two features. Expert 0 is right on the left, expert 1 on the right. But one batch in
# ten was graded by a broken judge: far
# out to the right it says that expert 0 was right. The test rows below were graded well.

import matplotlib.pyplot as plt
import numpy as np
import torch

from mildroute.routers import CustomLossRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

random = np.random.default_rng(0)


def draw(rows):
    X = random.normal(size=(rows, 2)) * (1.5, 1.0)
    return X, np.stack([X[:, 0] > 0, X[:, 0] <= 0], axis=1).astype(float)


X, costs = draw(540)
broken = random.normal(size=(60, 2)) * 0.4 + (9, -1.5)
X_train = np.concatenate([X, broken])
costs_train = np.concatenate([costs, np.tile([0.0, 1.0], (60, 1))])
X_test, costs_test = draw(5000)

# %%
# Two losses
# ----------
# ``"gap"`` is logistic: a row that is wrong by far counts for more the farther it is. It is convex,
# so that there is one solution and it
# is found. The other one is the cost that a router expects to pay if it draws experts from a
# softmax of its scores. It is bounded: a row
# that is wrong by far counts once, however far it is.


def expected_cost(scores: torch.Tensor, costs: torch.Tensor) -> torch.Tensor:
    """Both of shape (n, p); returns the loss of each row, shape (n,)."""
    return (scores.softmax(dim=1) * costs).sum(dim=1)


routers = {
    "gap": CustomLossRouter("gap", random_state=0).fit(X_train, costs_train),
    "expected cost": CustomLossRouter(expected_cost, random_state=0).fit(X_train, costs_train),
}
for name, router in routers.items():
    print(
        f"{name:14} costs {-router.score(X_test, costs_test):.3f} a row on rows that were graded"
        " well"
    )

# %%
# Where they draw the line
# ------------------------
# The crowd at the far right pulls the logistic line toward itself, and hundreds of sound rows end
# up on the wrong side. The bounded loss
# gives the crowd up and keeps the rest.

figure, panels = plt.subplots(
    1, 2, figsize=(9, 3.8), sharex=True, sharey=True, layout="constrained"
)
across, up = np.meshgrid(np.linspace(-7, 12, 300), np.linspace(-4.2, 4.2, 200))
for axes, (name, router) in zip(panels, routers.items(), strict=True):
    sent = router.predict(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)
    axes.contourf(across, up, sent, levels=[-0.5, 0.5, 1.5], colors=["C0", "C2"], alpha=0.18)
    best = costs_train.argmin(axis=1)
    for expert, colour in enumerate(("C0", "C2")):
        axes.scatter(
            *X_train[best == expert].T, s=9, color=colour, label=f"expert {expert} was right"
        )
    axes.set(
        title=f"{name}: mean cost {-router.score(X_test, costs_test):.3f}", xlabel="first feature"
    )
    axes.set(xlim=(-7, 12), ylim=(-4.2, 4.2))
panels[0].set_ylabel("second feature")
panels[0].annotate("the broken judge", (9, -3.2), ha="center")
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)

# %%
# What to take away
# -----------------
# ``CustomLossRouter`` takes the function as it is; it differentiates it, scales it and solves for
# the weights. A bounded loss is
# not convex, so that the solver finds *a* valley, not the lowest one for sure, and softmax scores
# no longer decode to
# probabilities. Bounded losses help where costs are wrong or a straight line does not fit. Where
# neither is so, "gap" is as good
# and safer. A function cannot be stored: to keep such a router, register the loss under the
# entry-point group
# ``mildroute.losses`` and give its name.
plt.show()
