"""
Deferring to people: human annotators
=====================================

A classifier labels tweets as hateful, offensive or neither, for nothing. A person does it more
often as most others would, and has to be
paid. Which tweets should a person see? And do we need a router to tell?
"""

# %%
# The tweets, with the votes of three or more people each, are `Davidson's
# <https://github.com/t-davidson/hate-speech-and-offensive-language>`_. The right label is what most
# people said, so a single person is
# right as often as people agree on that tweet. No tweet is shown here: many are foul.

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from mildroute.evaluation import bootstrap, chosen_costs
from mildroute.routers import MildRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

if "MILDROUTE_DATA" not in os.environ:
    raise SystemExit("set MILDROUTE_DATA to the folder that holds hatespeech_human.parquet.")
tweets = pq.read_table(Path(os.environ["MILDROUTE_DATA"], "hatespeech_human.parquet")).to_pydict()
texts, labels, agreement = (
    np.array(tweets["text"], dtype=object),
    np.array(tweets["label"]),
    np.array(tweets["human_acc"]),
)
own, train, test = np.split(np.random.default_rng(0).permutation(len(texts))[:12_000], 3)

classifier = make_pipeline(
    TfidfVectorizer(sublinear_tf=True, min_df=2), LogisticRegression(C=3, max_iter=1000)
)
classifier.fit(texts[own], labels[own])

# %%
# The router sees what the classifier thinks
# ------------------------------------------
# Experts may be asked before the router decides, if they cost nothing. So the router reads the
# classifier's three probabilities, as
# logarithms, and how far the largest is from 1: the classifier's doubt. Costs are errors alone; the
# person's is the chance that one
# person says something else.


def features(rows):
    beliefs = classifier.predict_proba(texts[rows])
    return np.hstack([np.log(beliefs + 1e-6), 1 - beliefs.max(axis=1, keepdims=True)])


def costs(rows):
    return np.stack([classifier.predict(texts[rows]) != labels[rows], 1 - agreement[rows]], axis=1)


router = MildRouter(features="raw", random_state=0).fit(features(train), costs(train))
to_person = router.predict_proba(features(test))[:, 1]
unsure = features(test)[:, -1]

# %%
# Sending more and more tweets to people
# --------------------------------------
# Order the tweets by the router's posterior, and send the first part of them to a person. Two
# rivals: drawing tweets at random, and sending
# those of which the classifier itself is least sure, which needs no router at all.

errors = costs(test)


def accuracy(order):
    """Accuracy after 0, 1, ..., n tweets were sent to a person."""
    gains = (errors[:, 0] - errors[:, 1])[np.argsort(-order)]
    return 100 * (1 - errors[:, 0].mean() + np.concatenate([[0], np.cumsum(gains)]) / len(test))


share = np.linspace(0, 100, len(test) + 1)
figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
axes.plot(share, accuracy(to_person), color="C0", label="by the router's posterior")
axes.plot(share, accuracy(unsure), color="C2", label="by the classifier's doubt")
axes.plot(share[[0, -1]], accuracy(unsure)[[0, -1]], color="0.5", linestyle="--", label="at random")
choice = router.predict(features(test))
axes.plot(
    100 * choice.mean(),
    100 * (1 - chosen_costs(errors, choice).mean()),
    "o",
    color="C0",
    markersize=9,
    label="what the router does by itself",
)
axes.annotate(
    "classifier alone", (0, accuracy(unsure)[0]), (8, -2), textcoords="offset points", va="top"
)
axes.annotate(
    "person\nalone", (100, accuracy(unsure)[-1]), (6, 0), textcoords="offset points", va="center"
)
axes.set(
    title="Together they are better than either alone",
    xlabel="% of the tweets that a person labels",
    ylabel="% labeled as most people do",
)
axes.set(xlim=(-3, 112), ylim=(87.8, 93.2))
figure.legend(loc="outside lower center", ncols=2)

# %%
# What to take away
# -----------------
# A person and a classifier together label more tweets well than either alone, since they stumble
# over different ones. The router finds
# the point of the curve by itself: it was not told how many tweets to send.
#
# But look at the orange line. Both curves are the same: all that the router has learned to look at
# is the classifier's own doubt. With one
# classifier that knows when it is unsure, a threshold on its doubt is enough, once it has been
# chosen. A router is worth its while
# where there are several experts, prices that differ, or experts that cannot say how sure they are.

for name, who in (
    ("classifier", np.zeros(len(test), int)),
    ("person", np.ones(len(test), int)),
    ("router", choice),
):
    found = bootstrap(1 - chosen_costs(errors, who))
    print(
        f"{name:10}  {found.value:.3f} of the tweets as most people do, 95% interval"
        f" {found.low:.3f} to {found.high:.3f}"
    )
plt.show()
