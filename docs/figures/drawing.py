"""What the figures share.

One look, and files that come out equal byte for byte when they are drawn again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
OURS, BLUE, GOLD, GREEN, PURPLE, GREY = (
    "#c1364a",
    "#00708a",
    "#c98a00",
    "#4d8a6a",
    "#7b5a91",
    "#6b6b6b",
)

mpl.rcParams.update(
    {
        "svg.hashsalt": "mildroute",
        "font.size": 13,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 13,
        "legend.frameon": False,
        "legend.fontsize": 12,
        "lines.linewidth": 2,
        "savefig.facecolor": "white",
    }
)


# For pages with a dark background, which is Furo's; the series keep their hues.
DARK = {
    "text.color": "#e6e6e6",
    "axes.labelcolor": "#e6e6e6",
    "axes.edgecolor": "#a0a0a0",
    "xtick.color": "#e6e6e6",
    "ytick.color": "#e6e6e6",
    "axes.facecolor": "#131416",
    "figure.facecolor": "#131416",
    "savefig.facecolor": "#131416",
}
LIGHTER = {
    OURS: "#ff7a8c",
    BLUE: "#4fc3dd",
    GOLD: "#ffc94d",
    GREEN: "#8fd3b0",
    PURPLE: "#c3a3dd",
    GREY: "#b4b4b4",
}


def canvas(
    width: float = 6.4, height: float = 4.2, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Any, Any]:
    """A figure and its axes."""
    return plt.subplots(rows, columns, figsize=(width, height), layout="constrained", **options)


def save(figure: Any, script: str, kind: str = "svg") -> None:
    """Write the figure beside its script, without a date or a version in it."""
    path = Path(script).with_suffix(f".{kind}")
    unknown: dict[str, None] = (
        {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    )
    figure.savefig(path, metadata=unknown, dpi=160)
    print(path.relative_to(ROOT))
