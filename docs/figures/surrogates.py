"""The zero-one loss and what stands in for it, as functions of the lead of the right expert."""

from __future__ import annotations

import numpy as np
from drawing import BLUE, GOLD, GREEN, OURS, canvas, save


def main() -> None:
    """Draw it."""
    lead = np.linspace(-2.5, 3.5, 601)
    figure, (shapes, margins) = canvas(6.4, 8.4, 2, 1)
    shapes.step([-2.5, 0, 3.5], [1, 1, 0], color="black", where="pre", label="zero-one")
    shapes.plot(lead, np.clip(1 - lead, 0, 1), color=BLUE, ls="--", label="ramp $\\Phi_1$")
    shapes.plot(lead, np.maximum(0, 1 - lead), color=GREEN, label="hinge")
    shapes.plot(lead, np.exp(-lead), color=GOLD, label="exponential, $\\tau = 0$")
    shapes.plot(lead, np.log1p(np.exp(-lead)), color=OURS, label="logistic, $\\tau = 1$")
    shapes.plot(
        lead, np.log1p(np.exp(-lead)) / np.log(2), color=OURS, ls=":", label="logistic / log 2"
    )
    shapes.set(ylim=(0, 4), ylabel="loss", title="five functions, margin 1")
    shapes.legend()
    for margin, colour in ((0.5, BLUE), (1.0, OURS), (2.0, GOLD)):
        margins.plot(
            lead, np.log1p(np.exp(-lead / margin)), color=colour, label=f"$\\rho$ = {margin:g}"
        )
    margins.set(
        ylim=(0, 4),
        ylabel="loss",
        xlabel="lead $f_1 - f_2$ of the right expert",
        title="logistic, three margins",
    )
    margins.legend()
    save(figure, __file__)


if __name__ == "__main__":
    main()
