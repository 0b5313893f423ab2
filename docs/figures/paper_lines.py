"""The forest plot of all lines of the paper, and the shares of the experts.

Both are drawn from the stored results in ``paper/results``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from drawing import BLUE, GOLD, GREEN, GREY, OURS, ROOT, canvas, save

sys.path.insert(0, str(ROOT))

from paper.claims import IMAGE_TABLES, network_file, read_store
from paper.network_results import NetworkResult, network_gap, read_results, widest
from paper.results import Store
from paper.summaries import Gap, LineFigures, figures_of
from paper.tables import TABLES

STORE = Store(ROOT / "paper" / "results" / "linear")
SEEDS = 5
# Largest difference on the axis.
LIMIT = 0.075
SETS = {
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "svhn": "SVHN",
    "tiny_imagenet": "Tiny ImageNet",
}
NETWORK = (
    ("mild", "MILD", OURS, "o"),
    ("sum-equal", "equal margins", BLUE, "s"),
)
LINEAR = (
    ("mild-mass", "MILD, untuned", OURS, "o"),
    ("mild-mass-tuned", "MILD, tuned", GOLD, "D"),
    ("mild-decoded", "winner counts, decoded", GREEN, "^"),
    ("mild", "winner counts, untuned", GREY, "s"),
)


def draw_forest(lines: list[tuple[str, LineFigures]], networks: list[NetworkResult]) -> None:
    """Draw the difference to TDEF of every line, networks on the left, linear ones on the right."""
    figure, (left, right) = canvas(
        8.6, 0.3 * len(lines) + 2.2, 1, 2, sharey=True, width_ratios=(2, 3)
    )
    for y, (table, each) in enumerate(lines):
        cells = [r for r in networks if (r.cell.table, r.cell.row) == (table, each.line.row)]
        tdef = [r for r in cells if r.cell.method == "tdef"]
        for shift, (name, _, color, marker) in enumerate(NETWORK):
            gap = network_gap([r for r in cells if r.cell.method == name], tdef)
            draw_gap(left, y + 0.3 * shift - 0.15, gap, color, marker)
        for shift, (name, _, color, marker) in enumerate(LINEAR):
            draw_gap(right, y + 0.22 * shift - 0.33, each.gaps.get(name), color, marker)
        mild, tdef_loss = each.printed_loss("MILD"), each.printed_loss("TDEF")
        if each.line.in_paper and mild is not None and tdef_loss is not None:
            for axes in (left, right):
                axes.plot(mild - tdef_loss, y, "|", color="black", ms=13, mew=2)
    for axes, methods, title in (
        (left, NETWORK, "small networks, tuned"),
        (right, LINEAR, "linear routers"),
    ):
        for _, label, color, marker in methods:
            axes.plot([], [], marker, color=color, label=label)
        axes.plot([], [], "|", color="black", ms=13, mew=2, label="printed in the paper")
        axes.axvline(0, color="black", lw=1)
        axes.set(xlim=(-LIMIT, LIMIT), title=title, xlabel="cost minus that of TDEF")
        axes.set_xticks((-0.05, 0, 0.05))
        axes.grid(axis="y", color="#e6e6e6", lw=0.8)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1 + 1.3 / len(lines)))
    names = [f"{table} {line_name(each)}" for table, each in lines]
    left.set_yticks(range(len(lines)), names, fontsize=12)
    left.set_ylim(len(lines) - 0.4, -0.6)
    save(figure, str(Path(__file__).with_name("paper_forest.py")))


def line_name(figures: LineFigures) -> str:
    """Return the name of a line, with a star if the paper does not have it."""
    words = figures.line.row.split()
    name = " ".join(SETS.get(word, word) for word in words)
    return name if figures.line.in_paper else f"{name} *"


def draw_gap(axes: Any, y: float, gap: Gap | None, color: str, marker: str) -> None:
    """Draw a difference with its interval, or an arrow to one beyond the axis."""
    if gap is None:
        return
    if abs(gap.value) > LIMIT:
        axes.annotate(
            f"{gap.value:+.2f}",
            (LIMIT, y),
            (LIMIT * 0.66, y),
            color=color,
            fontsize=10,
            va="center",
            arrowprops={"arrowstyle": "->", "color": color},
        )
        return
    axes.plot([gap.low, gap.high], [y] * 2, color=color, lw=1.4)
    axes.plot(gap.value, y, marker, color=color, ms=4.5)


def draw_shares(lines: list[tuple[str, LineFigures]], networks: list[NetworkResult]) -> None:
    """Draw how often each expert is chosen against how often it is the best one."""
    figure, (left, right) = canvas(8.6, 5.0, 1, 2, sharey=True)
    for name, label, color, marker in (
        ("tdef", "TDEF", GREY, "s"),
        ("mild", "MILD", OURS, "o"),
    ):
        cells = [each for each in networks if each.cell.method == name]
        best = np.concatenate([each.optimal for each in cells])
        chosen = np.concatenate([each.shares for each in cells])
        left.plot(best, chosen, marker, color=color, label=label, ms=5, alpha=0.6)
    both = [(table, each) for table, each in lines if "mild-mass" in each.shares]
    for name, label, color, marker in (
        ("tdef", "TDEF", GREY, "s"),
        ("mild-mass", "MILD, untuned", OURS, "o"),
        ("mild", "winner counts, untuned", BLUE, "^"),
    ):
        best = [share for _, each in both for share in each.optimal]
        chosen = [share for _, each in both for share in each.shares[name]]
        right.plot(best, chosen, marker, color=color, label=label, ms=5, alpha=0.7)
    for axes, title in ((left, "small networks, tuned"), (right, "linear routers")):
        axes.plot([0, 1], [0, 1], color="black", lw=1)
        axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), title=title)
        axes.set(xlabel="share of rows: is best", xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
        axes.legend(loc="upper left")
    left.set_ylabel("share of rows: is chosen")
    save(figure, str(Path(__file__).with_name("paper_shares.py")))


def main() -> None:
    """Draw both figures."""
    results, networks = read_store(STORE, SEEDS), read_results(network_file(STORE))
    lines = [
        (name, each) for name in IMAGE_TABLES for each in figures_of(TABLES[name], results, SEEDS)
    ]
    draw_forest(lines, networks)
    draw_shares(lines, widest(networks))


if __name__ == "__main__":
    main()
