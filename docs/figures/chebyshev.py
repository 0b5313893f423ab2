"""Error of the interpolated logsumexp against the number of nodes, on the hardest scores known.

Beside it stands the rate that sets that number.
"""

from __future__ import annotations

import math

import torch
from drawing import BLUE, GOLD, OURS, canvas, save

from mildroute.losses._interpolation import _chebyshev

RATIO = 10.0


def error(experts: int, nodes: int) -> float:
    """Return the largest error over margins from 1 to 10, at the worst of 60 gaps.

    A gap is that of one expert above equal ones.
    """
    margins = torch.logspace(0, math.log10(RATIO), 200, dtype=torch.float64)
    where, weights = _chebyshev(tuple(margins.tolist()), nodes)
    gaps = math.log(experts - 1) * torch.logspace(-0.5, 1.5, 60, dtype=torch.float64)
    at = [
        torch.log1p((experts - 1) * torch.exp(-inverse[:, None] * gaps))
        for inverse in (where, 1 / margins)
    ]
    return float((weights @ at[0] - at[1]).abs().max())


def rate(experts: int) -> float:
    """The r of the error r ** -M."""
    return math.exp(math.asinh(math.atan2(math.pi, math.log(experts - 1)) / (math.log(RATIO) / 2)))


def main() -> None:
    """Draw it."""
    figure, axes = canvas(6.4, 4.8)
    counts = range(4, 45, 2)
    for experts, colour in ((10, BLUE), (100, OURS), (1000, GOLD)):
        axes.plot(
            counts,
            [max(error(experts, count), 1e-16) for count in counts],
            "o-",
            color=colour,
            label=f"p = {experts}",
        )
        axes.plot(counts, [rate(experts) ** (1 - count) / 2 for count in counts], ":", color=colour)
    axes.axhline(5e-6, color="black", lw=1)
    axes.annotate("float32", (44, 5e-6), (0, 4), textcoords="offset points", ha="right")
    axes.set(yscale="log", ylim=(1e-15, 1), xlabel="nodes M", ylabel="largest error of logsumexp")
    axes.legend(title="dotted: $r^{1-M}/2$")
    save(figure, __file__)


if __name__ == "__main__":
    main()
