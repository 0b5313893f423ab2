"""
Scikit-learn classifiers as experts
===================================

Three classifiers read handwritten digits. Two are cheap and were taught half of the digits each;
the third knows all ten and costs more.
A router learns from their mistakes which of them should read which image.
"""

# %%
# Experts are fixed
# -----------------
# They learn from 600 images that are then put away. What they get wrong on *other* images is what
# the router learns from: on its own
# training rows an expert always looks too good.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from mildroute.evaluation import bootstrap, chosen_costs, oracle
from mildroute.routers import MildRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

X, digits = load_digits(return_X_y=True)
X_own, X_rest, digits_own, digits_rest = train_test_split(X, digits, train_size=600, random_state=0)
low = digits_own < 5
experts = {
    "knows 0 to 4": LogisticRegression(C=0.01, max_iter=1000).fit(X_own[low], digits_own[low]),
    "knows 5 to 9": LogisticRegression(C=0.01, max_iter=1000).fit(X_own[~low], digits_own[~low]),
    "knows all": SVC(gamma=0.001).fit(X_own, digits_own),
}
prices = np.array([0.0, 0.0, 0.2])  # of an answer, where an error costs 1

# %%
# A matrix of costs
# -----------------
# One row for each image, one column for each expert: 1 if it is wrong, plus its price. This is all
# that a router has to know of an
# expert.

answers = np.stack([model.predict(X_rest) for model in experts.values()], axis=1)
costs = (answers != digits_rest[:, None]) + prices
X_train, X_test, costs_train, costs_test = train_test_split(
    X_rest, costs, test_size=0.5, random_state=0
)

router = MildRouter(random_state=0).fit(X_train, costs_train)
choice = router.predict(X_test)
print("chosen by cross-validation:", router.selection_)

# %%
# What it costs
# -------------
# Mean costs of images never seen before, with 95% intervals. The oracle knows in advance
# who will be right: no router can be
# better, and none can be built that is as good.

every = {name: np.full(len(X_test), place) for place, name in enumerate(experts)} | {
    "router": choice,
    "oracle": oracle(costs_test),
}
found = [bootstrap(chosen_costs(costs_test, who)) for who in every.values()]
values = np.array([each.value for each in found])
reach = [[each.value - each.low for each in found], [each.high - each.value for each in found]]

figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
axes.barh(
    list(every),
    values,
    xerr=reach,
    color=["0.75"] * 3 + ["C0", "C1"],
    error_kw={"elinewidth": 1.2, "capsize": 3},
)
axes.bar_label(axes.containers[1], fmt="%.3f", padding=5)
axes.invert_yaxis()
axes.grid(visible=False, axis="y")
axes.set(
    title="The router costs less than any of its experts",
    xlabel="errors + price of an image",
    xlim=(0, 0.65),
)

# %%
# Which images go where
# ---------------------
# Twenty images for each expert, drawn at random from those the router sends to it. It was never
# told what a digit is. It saw pixels
# and costs, and found out who is good at which shapes. For ``knows all`` remain those that look
# like both halves.
#
# Do not expect this of every set of classifiers. Three that know *the same* things differ by chance
# alone, and then no router can do more
# than pick the best of them.

figure, axes = plt.subplots(1, 3, figsize=(9, 3), layout="constrained")
random = np.random.default_rng(0)
for axis, name, place in zip(axes, experts, range(3), strict=True):
    sent = np.flatnonzero(choice == place)
    tiles = X_test[random.choice(sent, size=20, replace=False)].reshape(4, 5, 8, 8)
    axis.imshow(
        np.pad(tiles, ((0, 0), (0, 0), (1, 1), (1, 1))).transpose(0, 2, 1, 3).reshape(40, 50),
        cmap="gray_r",
    )
    axis.set_title(f"{name}: {len(sent) / len(choice):.0%} of the images", fontsize=11)
    axis.set_axis_off()
plt.show()
