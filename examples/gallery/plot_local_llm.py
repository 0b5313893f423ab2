"""
A language model on your own machine as an expert
=================================================

SmolLM2-135M runs on any laptop. Is it worth asking? Five experts label the same 1,000 tweets: the
model told the task in a sentence, the
same model shown four examples, two classifiers, and a person. ``collect`` asks them, judges the
answers and writes a cost table.
"""

# %%
# Answers that were kept
# ----------------------
# The model took 54 minutes on a busy machine. Its answers were kept (labels, tokens, seconds,
# dollars; no tweet), and an expert of kind
# ``recorded`` gives them again. These are the commands that made them, in ``examples/local_llm``:
#
# .. code-block:: console
#
#     python serve_smollm2.py --port 8080 &
#     python prepare.py
#     PYTHONPATH=. mildroute collect queries.parquet --experts experts.yaml --judge label \
#         --judge-setting 'labels=["hate","offensive","neither"]' --out costs --max-dollars 60 --yes
#     python record.py costs answers

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mildroute.collection import CollectionJob, collect, open_queries
from mildroute.costs import CostTable, describe
from mildroute.evaluation import bootstrap, oracle_point, random_mixture, single_points
from mildroute.experts import build_expert, read_experts
from mildroute.judges import get_judge

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

if "MILDROUTE_DATA" not in os.environ:
    raise SystemExit("set MILDROUTE_DATA to the folder that holds hatespeech_human.parquet.")
example = Path("../local_llm").resolve()  # run in the folder of this file
folder = Path(tempfile.mkdtemp())
subprocess.run([sys.executable, example / "prepare.py"], cwd=folder, check=True)

# %%
# Ask, judge, write down
# ----------------------
# What experts say is compared with what most people said. With ``experts.yaml`` in place of
# ``replay.yaml`` the same lines would ask the
# model itself. Prices are made up; their order is not.

experts = read_experts(example / "replay.yaml")
judge = get_judge("label", labels=["hate", "offensive", "neither"])
queries = open_queries(folder / "queries.parquet")
found = collect(
    CollectionJob(
        queries, [build_expert(spec) for spec in experts.experts], judge, folder / "costs"
    )
)
table = CostTable.read(found.table)
for expert in describe(table).experts:
    bill, alone = expert.dollars_per_1000, expert.wins_alone
    print(
        f"{expert.name:9}  score {expert.score:.3f}   {bill:8.4f} dollars per 1,000   alone right"
        f" on {alone:.1%}"
    )

# %%
# Money against quality
# ---------------------
# The line joins the experts that no mix of others beats. The oracle knows in advance who is right
# and takes the cheapest of those.

figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
singles, best = (
    single_points(table.scores, table.dollars, table.experts),
    oracle_point(table.scores, table.dollars),
)
bills = np.geomspace(
    min(each.dollars_per_1000 for each in singles),
    max(each.dollars_per_1000 for each in singles),
    200,
)
axes.plot(
    bills,
    [random_mixture(singles, bill).score for bill in bills],
    "--",
    color="0.5",
    label="best random mix of experts",
)
for place, each in enumerate(singles):
    interval = bootstrap(table.scores[:, place])
    colour = "C2" if each.name.endswith("shot") else "C0"
    reach = [[each.score - interval.low], [interval.high - each.score]]
    axes.errorbar(
        each.dollars_per_1000, each.score, reach, fmt="o", color=colour, capsize=3, markersize=8
    )
    axes.annotate(
        each.name,
        (each.dollars_per_1000, each.score),
        (9, -9),
        textcoords="offset points",
        va="top",
    )
axes.plot(best.dollars_per_1000, best.score, "*", color="C1", markersize=15, label="oracle")
axes.set(
    xscale="log",
    xlim=(5e-4, 200),
    ylim=(0, 1.05),
    xlabel="dollars per 1,000 tweets (made-up prices)",
    ylabel="labeled as most people do",
)
axes.set_title("A small language model (orange) that is not worth asking")
axes.legend(loc="lower right")

# %%
# What to take away
# -----------------
# Not every expert deserves a place. The model is right less often than one who always says
# "offensive" (0.756), and classifiers beat it
# by far for about as little. A cost table shows that before anything is built. The classifiers and
# the person are worth a router: the
# tutorial on collecting fits one whose quality is not significantly different from the person's for
# 55% less money.

plt.show()
