"""The four layers: learn, decide, serve, improve, and what flows between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from drawing import BLUE, DARK, GOLD, GREEN, GREY, LIGHTER, OURS, canvas, save
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

WIDTH, HEIGHT = 100, 62


@dataclass(frozen=True)
class Layer:
    """A row of the picture: its name, one line about it, and the packages it holds."""

    name: str
    summary: str
    packages: Sequence[tuple[str, str]]
    color: str
    bottom: float


LAYERS = (
    Layer(
        "learn",
        "costs in, artifact out",
        (
            ("costs", "tables, clusters"),
            ("encoders", "text to vectors"),
            ("routers", "MILD, regression"),
            ("fitting", "fit, target, check"),
            ("persistence", "artifact"),
        ),
        BLUE,
        48,
    ),
    Layer(
        "decide",
        "knows no HTTP",
        (
            ("decision", "Decider: artifact + target + state → Decision"),
            ("decision.log", "choice, propensity, dollars"),
        ),
        OURS,
        33,
    ),
    Layer(
        "serve",
        "thin adapters",
        (
            ("Python, CLI", "fit, route"),
            ("integrations", "LiteLLM and others"),
            ("gateway", "OpenAI-compatible, cascades"),
        ),
        GREEN,
        18,
    ),
    Layer(
        "improve",
        "one run, by cron",
        (
            ("feedback", "scores of answers"),
            ("evaluation", "off-policy verdict"),
            ("learning", "candidate: promote or keep"),
        ),
        GOLD,
        3,
    ),
)
LEFT, RIGHT, GAP, BOX = 17.0, 93.0, 1.6, 10.0


def arrow(
    axes: Axes, start: tuple[float, float], end: tuple[float, float], color: str, bend: float = 0.0
) -> None:
    """Draw an arrow between two points."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=14,
            linewidth=1.6,
            color=color,
            connectionstyle=f"arc3,rad={bend}",
        )
    )


def draw(*, dark: bool) -> None:
    """Draw the picture for a light or a dark page."""
    hue = LIGHTER if dark else {color: color for color in LIGHTER}
    ink = "#e6e6e6" if dark else "#1a1a1a"
    figure, axes = canvas(9.6, 5.9)
    axes.set(xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    for layer in LAYERS:
        color = hue[layer.color]
        middle = layer.bottom + BOX / 2
        axes.text(1, middle + 1.2, layer.name, color=color, fontsize=16, weight="bold")
        axes.text(1, middle - 2.4, layer.summary, color=hue[GREY], fontsize=9.5)
        width = (RIGHT - LEFT + GAP) / len(layer.packages) - GAP
        for index, (package, purpose) in enumerate(layer.packages):
            left = LEFT + index * (width + GAP)
            axes.add_patch(
                FancyBboxPatch(
                    (left, layer.bottom),
                    width,
                    BOX,
                    boxstyle="round,pad=0,rounding_size=1.2",
                    facecolor=(*mpl.colors.to_rgb(color), 0.12),
                    edgecolor=color,
                    linewidth=1.4,
                )
            )
            center = left + width / 2
            axes.text(center, middle + 0.9, package, ha="center", color=ink, fontsize=12)
            axes.text(center, middle - 2.6, purpose, ha="center", color=hue[GREY], fontsize=9.5)
    axes.text(55, 60, "graded answers, eval logs", ha="center", color=ink, fontsize=11)
    middle = (LEFT + RIGHT) / 2
    for top, label in ((48, "artifact"), (33, "Decision"), (18, "log and feedback")):
        arrow(axes, (middle, top - 0.3), (middle, top - 4.7), hue[GREY])
        axes.text(middle + 1.2, top - 3.2, label, color=hue[GREY], fontsize=10)
    arrow(axes, (middle, 59.5), (middle, 58.3), hue[GREY])
    # A candidate that is promoted takes the place of the artifact.
    arrow(axes, (RIGHT + 0.4, 8), (RIGHT + 0.4, 53), hue[GOLD], bend=0.28)
    axes.text(
        97.6, 30.5, "cost table", rotation=90, ha="right", va="center", color=hue[GOLD], fontsize=10
    )
    script = Path(__file__)
    save(figure, str(script.with_stem("architecture-dark") if dark else script))


def main() -> None:
    """Draw both pictures."""
    draw(dark=False)
    with mpl.rc_context(DARK):
        draw(dark=True)


if __name__ == "__main__":
    main()
