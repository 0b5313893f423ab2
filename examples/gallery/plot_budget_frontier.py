"""
Budget and quality: the cost frontier
=====================================

"Spend at most two dollars per 1,000 questions" is how people ask. ``FrontierRouter`` learns routers
for many prices of quality at once,
so that the price can be chosen after training, from a budget, and changed without training again.
"""

# %%
# Eleven models, real bills
# -------------------------
# The table holds answers of eleven language models to 3,148 questions on science, common sense and
# Python, and the dollars that each
# answer cost. A third of the questions is kept for the picture.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mildroute.costs import CostTable
from mildroute.evaluation import dollars_per_1000, mean_score, measure_frontier
from mildroute.routers import FrontierRouter, KNNRouter, MildRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

if "MILDROUTE_DATA" not in os.environ:
    raise SystemExit(
        "set MILDROUTE_DATA to the folder that holds routerbench_subset.parquet and its vectors."
    )
folder = Path(os.environ["MILDROUTE_DATA"])
table = CostTable.read(folder / "routerbench_subset.parquet")
vectors = np.load(folder / "routerbench_subset.minilm.npy").astype(np.float32)
errors, dollars = 1 - table.scores, table.dollars
train, test = np.split(np.random.default_rng(0).permutation(table.rows), [2100])

# %%
# One router, many prices
# -----------------------
# A price weight says how many errors a dollar is worth. Naming reward and features saves the search
# for them. Between two points of the
# frontier a coin decides for each question, so that any budget can be met, not only those of the
# grid.

weights = (0, 5, 20, 80, 300)
template = MildRouter(features="raw", reward="gap", margins="uniform", random_state=0)
router = FrontierRouter(router=template, price_weights=weights).fit(
    vectors[train], errors[train], prices=dollars[train]
)

budget = 2.0
point = router.for_budget(budget, queries=len(test))
choice = router.predict(vectors[test], point=point)
print(f"promised: at most {budget} dollars per 1,000 in 95 of 100 batches of {len(test)} questions")
print(f"expected: {point.dollars_per_1000:.2f} dollars, a score of {point.score:.3f}")
print(
    f"measured: {dollars_per_1000(dollars[test], choice):.2f} dollars, a score of"
    f" {mean_score(table.scores[test], choice):.3f}"
)

# %%
# Beside single models, neighbors and the oracle
# ----------------------------------------------
# ``measure_frontier`` measures the router along its prices on questions that it has not seen, with
# a 95% band. The dashed line joins the
# single models that no mix of others beats: random draws between two of them give every point on
# it, for no effort at all.

along = np.geomspace(1, 300, 25)
measured = measure_frontier(
    [router.predict(vectors[test], weight) for weight in along],
    table.scores[test],
    dollars[test],
    experts=table.experts,
)
neighbors = [
    KNNRouter().fit(vectors[train], errors[train] + weight * dollars[train]).predict(vectors[test])
    for weight in weights
]

figure, axes = plt.subplots(figsize=(8, 5.2), layout="constrained")
band = measured.band
axes.fill_between(band.dollars_per_1000, band.low, band.high, color="C0", alpha=0.15, linewidth=0)
axes.plot(band.dollars_per_1000, band.score, color="C0", label="router, with its 95% band")
axes.plot(
    [dollars_per_1000(dollars[test], who) for who in neighbors],
    [mean_score(table.scores[test], who) for who in neighbors],
    "s", color="C2", label="tuned nearest neighbors",
)  # fmt: skip
bills = np.geomspace(
    min(each.dollars_per_1000 for each in measured.singles),
    max(each.dollars_per_1000 for each in measured.singles),
)
axes.plot(
    bills,
    [measured.random_mixture(bill).score for bill in bills],
    "--",
    color="0.5",
    label="best random mix of single models",
)
for each in measured.singles:
    axes.plot(each.dollars_per_1000, each.score, "o", color="0.45", markersize=5)
    name = each.name.split("/")[-1].removesuffix("-preview").removesuffix("-chat")
    axes.annotate(
        name,
        (each.dollars_per_1000, each.score),
        (5, -3),
        textcoords="offset points",
        fontsize=8,
        va="top",
    )
axes.plot(
    measured.oracle.dollars_per_1000,
    measured.oracle.score,
    "*",
    color="C1",
    markersize=14,
    label="oracle",
)
axes.axvline(budget, color="C3", linewidth=1)
axes.plot(
    dollars_per_1000(dollars[test], choice),
    mean_score(table.scores[test], choice),
    "D",
    color="C3",
    label="chosen for 2 dollars",
)
axes.set(
    xscale="log",
    xlabel="dollars per 1,000 questions",
    ylabel="score",
    title="Money against quality: the router lies above mixes of single models",
)
axes.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
figure.legend(loc="outside lower center", ncols=3)

# %%
# What to take away
# -----------------
# The router gives more score for the same money than any single model or mix of them, except at
# the expensive end, where all of them are the
# most expensive model. Tuned nearest neighbors are not significantly different. They need a fit
# for each price, while here one artifact serves
# all. The oracle shows how much is left: most of it is luck of single answers, not something that a
# question gives away.
plt.show()
