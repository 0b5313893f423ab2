"""
A look at an answer before deciding
===================================

Some questions do not show whether a small model can answer them; its answer does. A cascade asks
the small model first, looks at what it said, and asks a larger one only if that seems worth it.
"""

# %%
# Three models and questions that tell nothing
# --------------------------------------------
# All is synthetic, so that the truth is known. Two cheap models are right on seven of ten questions
# each, and which ones is luck that no question shows. When they are wrong they often hedge, and two
# wrong answers rarely agree.

import matplotlib.pyplot as plt
import numpy as np

from mildroute.encoders import AnswerFeatures, see_answers
from mildroute.routers import CascadeRouter, FrontierRouter, RegressionRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

random = np.random.default_rng(0)
n, names = 1200, ["small", "medium", "large"]
dollars = np.array([0.001, 0.002, 0.02])
X = random.normal(size=(n, 4))
is_right = random.random((n, 3)) < (0.7, 0.72, 0.97)
truth = random.integers(0, 4, n)
wrong = (truth[:, None] + random.integers(1, 4, (n, 3))) % 4
letters = np.where(is_right, truth[:, None], wrong)
is_sure = random.random((n, 3)) < np.where(is_right, 0.9, 0.3)
answers = [
    [
        f"{'Clearly' if sure else 'I am not sure, but maybe'} the answer is ({'ABCD'[letter]})."
        for sure, letter in zip(is_sure[:, expert], letters[:, expert], strict=True)
    ]
    for expert in range(3)
]
errors = 1.0 - is_right
train, test = np.arange(n) < 800, np.arange(n) >= 800

# %%
# What a cascade sees
# -------------------
# ``AnswerFeatures`` makes vectors of answers and reads the results that they state, so that two can
# be compared. It is fitted on answers of the training rows and knows neither scores nor references.

features = AnswerFeatures().fit([text for texts in answers for text in np.array(texts)[train]])
seen = see_answers(features, answers)
agree = seen.agree(0, 1)
print(f"answers are read as: {features.reading_}; the first says {features.read(answers[0][:1])}")
print(
    f"small is right on {is_right[agree, 0].mean():.0%} if it agrees with medium, else on", end=" "
)
print(f"{is_right[~agree, 0].mean():.0%}")

# %%
# Routing, with and without looks
# -------------------------------
# Both routers learn from the same vectors, errors and dollars. The cascade also gets the answers,
# keeps looks that are better than routing by two standard errors, and offers them as further
# columns beside the models.

weights = (0, 5, 10, 20, 50, 100)
plain = FrontierRouter(router=RegressionRouter(), price_weights=weights, random_state=0)
plain.fit(X[train], errors[train], prices=dollars, experts=names)
cascade = CascadeRouter(router=RegressionRouter(), price_weights=weights, random_state=0)
cascade.fit(X[train], errors[train], prices=dollars, experts=names, answers=seen.take(train))
for name in cascade.experts_[cascade.n_experts :]:
    print("look:", name)

# %%
# Money against quality
# ---------------------
# ``follow`` tells for each row whom the cascade asked and whose answer it returned. All calls are
# paid for.


def measured(price_weight):
    """Dollars per 1,000 questions and score on test rows: routing, then the cascade."""
    rows = np.arange(test.sum())
    chosen = plain.predict(X[test], price_weight)
    path = cascade.follow(X[test], seen.take(test), price_weight)
    return (
        (1000 * dollars[chosen].mean(), is_right[test][rows, chosen].mean()),
        (1000 * (path.is_called @ dollars).mean(), is_right[test][rows, path.experts].mean()),
    )


points = np.array([measured(weight) for weight in weights])
path = cascade.follow(X[test], seen.take(test), price_weight=20)
print(f"at 20 errors a dollar: {path.is_look.mean():.0%} of rows are looked at, ", end="")
print(f"{path.is_called.sum(axis=1).mean():.2f} calls a row")

figure, axes = plt.subplots(figsize=(7, 5), layout="constrained")
axes.plot(
    1000 * dollars, is_right[test].mean(axis=0), "ok--", label="single models and their mixes"
)
for name, x, y in zip(names, 1000 * dollars, is_right[test].mean(axis=0), strict=True):
    axes.annotate(name, (x, y), xytext=(6, -12), textcoords="offset points")
for place, label in enumerate(("routing by the question", "with looks at answers")):
    bills, scores = points[np.argsort(points[:, place, 0]), place].T
    axes.plot(bills, scores, "o-", label=label)
axes.set(
    xlabel="dollars per 1,000 questions",
    ylabel="score",
    title="Answers tell what questions do not",
)
axes.legend(loc="lower right")

# %%
# What to take away
# -----------------
# If questions tell nothing, routing is a coin between models and stays on the dashed line. A look
# buys most of the large model's score for a part of its price. If no look is better than routing,
# none is offered, and the cascade is the router without looks.
plt.show()
