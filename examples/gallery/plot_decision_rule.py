"""
Decision rule: largest score or posterior
=========================================

The MILD loss gives each expert a margin of its own, so that rare experts are not overlooked. With
margins that differ, the expert of the
largest score need not be the best one, even for a router that was trained to perfection. A small
counterexample shows it, and what to do
instead.
"""

# %%
# Two experts, one input
# ----------------------
# Expert 1 is the right choice with probability 0.6 and expert 2 with 0.4. Margins are 2 and 1. The
# loss depends on the difference of the
# two scores alone, so that all of it fits into one picture.

import matplotlib.pyplot as plt
import numpy as np
import torch

from mildroute.losses import choose, deferral_loss, posterior

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

chances, margins = (
    torch.tensor([[0.6, 0.4]], dtype=torch.float64),
    torch.tensor([2.0, 1.0], dtype=torch.float64),
)
difference = torch.linspace(-3, 3, 6001, dtype=torch.float64)
scores = torch.stack([difference, torch.zeros_like(difference)], dim=1)
loss = deferral_loss(scores, chances.expand_as(scores), margins, reduction="none")
best = scores[loss.argmin()][None]
print("scores at the lowest loss:        ", best.numpy().round(3))
print("expert of the largest score:      ", choose(best, margins, decision="argmax").item() + 1)
print("posterior that the scores encode: ", posterior(best, margins).numpy().round(3))
print("expert of the largest posterior:  ", choose(best, margins).item() + 1)

# %%
# The lowest loss lies where expert 2 has the larger score, and expert 2 is wrong more often. No
# amount of data can fix this: it is where
# the loss wants to be. The scores are not wrong, they are only read wrongly. Each set of scores
# stands for one set of probabilities,
# which can be computed exactly for any margins, and the largest of *those* is the right choice.

# %%
# How often does it happen?
# -------------------------
# For any probability of expert 1 and any ratio of the margins, compare both ways to decide at the
# minimum of the loss. Between the two
# lines the largest score picks the worse expert.

chance, ratio = np.meshgrid(np.linspace(0.01, 0.99, 99), np.geomspace(0.1, 10, 99))
slope_at_zero = -chance / ratio + (
    1 - chance
)  # of the loss, where both scores are equal; up to a positive factor
by_score = slope_at_zero < 0  # the minimum lies where expert 1 has the larger score
by_posterior = chance > 0.5

lowest, highest = loss.min().item(), loss.max().item()
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
left.plot(difference.numpy(), loss.numpy(), color="C0")
left.plot(best[0, 0].item(), lowest, "o", color="C2")
left.axvline(0, color="0.4", linewidth=1)
left.annotate(
    "lowest loss",
    (best[0, 0].item(), lowest),
    (0, -16),
    textcoords="offset points",
    ha="center",
    color="C2",
)
left.text(-0.15, highest, "largest score:\nexpert 2", ha="right", va="top")
left.text(0.15, highest, "largest score:\nexpert 1", ha="left", va="top")
left.set(
    title="Expert 1 is right more often (.6), yet ...",
    xlabel="score of expert 1 minus score of expert 2",
    ylabel="loss",
)
left.set_ylim(bottom=lowest - 0.08)

right.contourf(
    chance, ratio, by_score != by_posterior, levels=[0.5, 1.5], colors=["C2"], alpha=0.35
)
right.axvline(0.5, color="C0")
right.plot(chance[0], chance[0] / (1 - chance[0]), color="0.3", linestyle="--")
right.plot(0.6, 2, "o", color="C2")
right.annotate("the case on the left", (0.6, 2), (0.53, 5.5), arrowprops={"arrowstyle": "-"})
right.set(yscale="log", ylim=(0.1, 10), title="Where the largest score is the worse choice")
right.set(
    xlabel="probability that expert 1 is right", ylabel="margin of expert 1 / margin of expert 2"
)
right.set_yticks([0.1, 1, 10], ["0.1", "1", "10"])

# %%
# What to take away
# -----------------
# With equal margins (the middle of the right picture) both ways agree, and nothing has to be done.
# With margins that differ, decide by
# the posterior. ``MildRouter`` does so by default, ``decision="argmax"`` gives the other rule for
# comparison, and
# :func:`mildroute.losses.posterior` and :func:`mildroute.losses.choose` do it for scores of your
# own.
plt.show()
