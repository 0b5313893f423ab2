"""Deferral in one dimension: four classes on a line, three experts with classes of their own.

The first expert knows two of the four classes, so it is the best one most often. Shown are the
rows, the chance that a row of the paper's sample is labeled with each expert, and the margins that
follow.
"""

from __future__ import annotations

import numpy as np
from drawing import BLUE, GOLD, OURS, canvas, save

from mildroute.losses import reward_mass, sum_rewards, theory_margins, winner_counts

# Center of each class, who knows it, and how many rows of 100 it has.
CENTERS, OWNERS, ROWS = (1.0, 2.4, 4.0, 5.4), (0, 0, 1, 2), (45, 35, 14, 6)
COLORS, WIDTH = (BLUE, GOLD, OURS), 0.42


def main() -> None:
    """Draw it."""
    import torch

    draw = np.random.default_rng(0)
    where = np.concatenate(
        [draw.normal(c, WIDTH, rows) for c, rows in zip(CENTERS, ROWS, strict=True)]
    )
    labels = np.repeat(np.arange(4), ROWS)
    costs = torch.tensor(np.array(OWNERS)[labels][:, None] != np.arange(3)).double()
    rewards = sum_rewards(costs)
    mass, wins = reward_mass(rewards), winner_counts(costs)

    figure, (rows, share, bars) = canvas(6.4, 8.6, 3, 1, height_ratios=(1, 1, 1.2))
    grid = np.linspace(-0.5, 7, 400)
    dense = np.stack(
        [n * np.exp(-((grid - c) ** 2) / 2 / WIDTH**2) for c, n in zip(CENTERS, ROWS, strict=True)]
    )
    dense /= dense.sum(axis=0)
    for expert, color in enumerate(COLORS):
        own = np.array(OWNERS)[labels] == expert
        rows.plot(where[own], labels[own] + 1, "o", color=color, alpha=0.5, ms=5)
        right = dense[np.array(OWNERS) == expert].sum(axis=0)
        share.plot(grid, (1 + right) / 4, color=color, label=f"expert {expert + 1}")
    rows.set(xlim=(-0.5, 7), ylim=(0.5, 4.5), yticks=(1, 2, 3, 4), ylabel="class")
    rows.set_title("rows, colored by the expert that is right")
    share.set(xlim=(-0.5, 7), ylim=(0, 0.62), xlabel="input", ylabel="p(expert | input)")
    share.set_title("label of a row in the paper's sample, sum reward")
    share.legend(loc="lower center", ncols=3)
    place = np.arange(3)
    for shift, counts, name, hatch in (
        (-0.2, mass, "m from P", ""),
        (0.2, wins, "m as winner counts", "//"),
    ):
        margins = theory_margins(counts)
        found = bars.bar(
            place + shift, margins, 0.36, color=COLORS, hatch=hatch, edgecolor="white", label=name
        )
        words = [f"{margin:.2f}\nm = {m:.0f}" for margin, m in zip(margins, counts, strict=True)]
        bars.bar_label(found, words, fontsize=11)
    bars.set(ylim=(0, 0.75), xticks=place, ylabel="margin", title="theory margins, which sum to 1")
    bars.set_xticks(place, [f"expert {k + 1}" for k in place])
    bars.legend(loc="upper right")
    save(figure, __file__)


if __name__ == "__main__":
    main()
