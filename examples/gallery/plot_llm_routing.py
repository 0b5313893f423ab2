"""
LLM routing from a table of answers
===================================

Three language models have answered the exam questions of MMLU, 57 subjects from algebra to world
religions. The best of them costs 75
times as much as the smallest. From their answers a router learns which *kind* of question is worth
the money.
"""

# %%
# The table
# ---------
# A cost table holds what each model scored on each question. This one has no bills, so list prices
# per million tokens stand in for them.
# ``price_weight=100`` says what a dollar is worth: as much as 100 wrong answers.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mildroute.costs import CostTable, PriceList
from mildroute.evaluation import bootstrap, chosen_costs, dollars_per_1000, mean_score, oracle
from mildroute.routers import KNNRouter, MildRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

if "MILDROUTE_DATA" not in os.environ:
    raise SystemExit(
        "set MILDROUTE_DATA to the folder that holds mmlu57.parquet and mmlu57.minilm.npy."
    )
folder = Path(os.environ["MILDROUTE_DATA"])
prices = {"claude-3-opus-20240229": 15.0, "mixtral-8x7b-instruct-v0.1": 0.6, "Llama-2-7b-hf": 0.2}
table = CostTable.read(folder / "mmlu57.parquet", experts=list(prices)).with_prices(
    PriceList.of(prices), output_tokens=5
)
vectors = np.load(folder / "mmlu57.minilm.npy").astype(
    np.float32
)  # what MiniLM makes of each question
costs = table.costs(price_weight=100)

# %%
# The router
# ----------
# It learns from 5,000 questions and decides on the other 8,659. While it learns it may look at the
# subjects. When it decides it sees the
# question alone and has to guess what the subject is.

train, test = np.split(np.random.default_rng(0).permutation(table.rows), [5000])
router = MildRouter(features="groups", random_state=0).fit(
    vectors[train], costs[train], groups=table.groups[train]
)
choice = router.predict(vectors[test])
neighbors = KNNRouter().fit(vectors[train], costs[train]).predict(vectors[test])

names = ("opus", "mixtral", "llama")
every = {name: np.full(len(test), place) for place, name in enumerate(names)}
every |= {"nearest questions": neighbors, "router": choice, "oracle": oracle(costs[test])}
for name, who in every.items():
    found, score, bill = (
        bootstrap(chosen_costs(costs[test], who)),
        mean_score(table.scores[test], who),
        dollars_per_1000(table.dollars[test], who),
    )
    print(
        f"{name:18} cost {found.value:.3f} [{found.low:.3f}, {found.high:.3f}]  score {score:.3f} "
        f" {bill:5.2f} dollars per 1,000"
    )

# %%
# Which subjects are worth the money
# ----------------------------------
# Each bar is a subject: the ten that get the expensive model most often, and the ten that get it
# most rarely. The dot at its end is orange where the expensive model's lead over the middle one is
# worth its price on these questions, and gray where it is not.

groups = table.groups[test]
subjects = np.unique(groups)
share = np.array([(choice[groups == subject] == 0).mean() for subject in subjects])
pays = np.array(
    [np.subtract(*costs[test][groups == subject].mean(axis=0)[[1, 0]]) > 0 for subject in subjects]
)
order = np.argsort(share)
shown = np.concatenate([order[:10], order[-10:]])

figure, axes = plt.subplots(figsize=(7, 5.6), layout="constrained")
height = np.concatenate([np.arange(10), np.arange(11, 21)])
axes.barh(height, 100 * share[shown], color="C0", height=0.7)
axes.scatter(np.full(20, 104), height, c=np.where(pays[shown], "C2", "0.8"), s=45)
axes.set_yticks(height, [subjects[place].replace("_", " ") for place in shown])
axes.set(xlabel="% of a subject's questions sent to opus", xlim=(0, 108), ylim=(-0.8, 20.8))
axes.set_title("Subjects for which the router pays most, and least")
axes.grid(visible=False, axis="y")

# %%
# What to take away
# -----------------
# No single model comes near: the router pays for the expensive one where it earns its price, and
# closes about a quarter of the way from the best single model to the oracle. A tuned look at the
# nearest questions, one of the strongest simple rivals, does as well here, without telling why.
# What is left is mostly luck of single answers, which no router can foresee from the question.

agree = (pays == (share > 0.5)).mean()
print(
    f"most of a subject goes to opus exactly where that pays: true of {agree:.0%} of the"
    f" {len(subjects)} subjects"
)
plt.show()
