"""The two-expert counterexample.

The conditional surrogate, its minimum, and where the two decisions part.
"""

from __future__ import annotations

import numpy as np
from drawing import BLUE, GOLD, OURS, canvas, save
from scipy.optimize import brentq
from scipy.special import expit

SHARE, FIRST, SECOND = 0.6, 2.0, 1.0


def risk(d: np.ndarray | float) -> np.ndarray | float:
    """Conditional surrogate at the lead d of the first expert."""
    return SHARE * np.logaddexp(0, -d / FIRST) + (1 - SHARE) * np.logaddexp(0, d / SECOND)


def slope(d: float) -> float:
    """Its derivative."""
    return float(-SHARE / FIRST * expit(-d / FIRST) + (1 - SHARE) / SECOND * expit(d / SECOND))


def odds(d: float) -> float:
    """Logarithm of the decoded odds of the first expert."""
    return float(np.log(FIRST * expit(d / SECOND)) - np.log(SECOND * expit(-d / FIRST)))


def main() -> None:
    """Draw it."""
    lowest, edge = brentq(slope, -5, 5), brentq(odds, -5, 5)
    print(
        f"minimizer {lowest:.5f}, consistent edge {edge:.5f}, lowest value {risk(lowest):.5f},"
        f" value at 0 {risk(0.0):.5f}"
    )
    lead = np.linspace(-2, 2, 401)
    figure, axes = canvas(6.4, 4.8)
    axes.plot(lead, risk(lead), color="black")
    axes.axvspan(edge, 0, color=GOLD, alpha=0.25)
    axes.axvline(0, color=BLUE, ls="--", label="largest score changes its mind")
    axes.axvline(edge, color=OURS, label="decoded posterior changes its mind")
    axes.plot(lowest, risk(lowest), "ko", markersize=9)
    axes.annotate(
        "minimum", (lowest, float(risk(lowest))), (-8, 22), textcoords="offset points", ha="center"
    )
    axes.annotate("← expert 2", (-2, 0.62), xycoords=("data", "axes fraction"), va="top")
    axes.annotate("expert 1 →", (2, 0.12), xycoords=("data", "axes fraction"), va="top", ha="right")
    axes.set(xlabel="lead $d = f_1 - f_2$", ylabel="surrogate $R(d)$")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    save(figure, __file__)


if __name__ == "__main__":
    main()
