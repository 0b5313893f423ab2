"""All lines of the paper: the difference to TDEF by reading, and shares of experts.

Drawn from the stored results in ``paper/results``. Writes two pictures.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from drawing import BLUE, GOLD, GREEN, GREY, OURS, ROOT, canvas, save

sys.path.insert(0, str(ROOT))

from paper.claims import IMAGE_TABLES, network_file, read_store
from paper.network_results import NetworkResult, network_gap, read_results, widest
from paper.results import Store
from paper.summaries import Gap, LineFigures, figures_of
from paper.tables import TABLES

STORE = Store(ROOT / "paper" / "results" / "linear")
SEEDS, LIMIT = 5, 0.055
NETWORK = (
    ("mild", "MILD, m from P", OURS, "o"),
    ("sum-equal", "sum reward, equal margins", BLUE, "s"),
)
LINEAR = (
    ("mild-mass", "m from P, argmax, untuned", OURS, "o"),
    ("mild-mass-tuned", "m from P, argmax, tuned", GOLD, "D"),
    ("mild-decoded", "winner counts, decoded", GREEN, "^"),
    ("mild", "winner counts, argmax, untuned", GREY, "s"),
)


def draw_forest(lines: list[tuple[str, LineFigures]], networks: list[NetworkResult]) -> None:
    """Draw the difference to TDEF of every line, networks on the left, linear ones on the right."""
    figure, (left, right) = canvas(11, 0.36 * len(lines) + 2.2, 1, 2, sharey=True)
    for place, (table, each) in enumerate(lines):
        here = [r for r in networks if (r.cell.table, r.cell.row) == (table, each.line.row)]
        tdef = [r for r in here if r.cell.method == "tdef"]
        for shift, (name, _, color, marker) in enumerate(NETWORK):
            gap = network_gap([r for r in here if r.cell.method == name], tdef)
            draw_gap(left, place + 0.3 * shift - 0.15, gap, color, marker)
        for shift, (name, _, color, marker) in enumerate(LINEAR):
            draw_gap(right, place + 0.2 * shift - 0.3, each.gaps.get(name), color, marker)
        printed = [each.printed[name].loss for name in ("MILD", "TDEF") if name in each.printed]
        if each.line.in_paper and len(printed) == 2 and None not in printed:
            for axes in (left, right):
                axes.plot(printed[0] - printed[1], place, "|", color="black", ms=13, mew=2)
    for axes, methods, title in (
        (left, NETWORK, "small networks, both tuned alike"),
        (right, LINEAR, "linear routers, convex loss"),
    ):
        for _, label, color, marker in methods:
            axes.plot([], [], marker, color=color, label=label)
        axes.plot([], [], "|", color="black", ms=13, mew=2, label="the paper's MILD - TDEF")
        axes.axvline(0, color="black", lw=1)
        axes.set(xlim=(-LIMIT, LIMIT), title=title, xlabel="cost above that of TDEF")
        axes.grid(axis="y", color="#e6e6e6", lw=0.8)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1 + 1.1 / len(lines)), fontsize=11)
    names = [
        f"{table} {each.line.row}" + ("" if each.line.in_paper else " *") for table, each in lines
    ]
    left.set_yticks(range(len(lines)), names, fontsize=10)
    left.set_ylim(len(lines) - 0.4, -0.6)
    save(figure, str(Path(__file__).with_name("paper_forest.py")))


def draw_gap(axes: object, place: float, gap: Gap | None, color: str, marker: str) -> None:
    """Draw a difference with its interval, or an arrow to one beyond the axis."""
    if gap is None:
        return
    if abs(gap.value) > LIMIT:
        axes.annotate(  # type: ignore[attr-defined]
            f"{gap.value:+.2f}",
            (LIMIT, place),
            (LIMIT * 0.78, place),
            color=color,
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "->", "color": color},
        )
        return
    axes.plot([gap.low, gap.high], [place] * 2, color=color, lw=1.4)  # type: ignore[attr-defined]
    axes.plot(gap.value, place, marker, color=color, ms=4.5)  # type: ignore[attr-defined]


def draw_shares(lines: list[tuple[str, LineFigures]], networks: list[NetworkResult]) -> None:
    """Draw how often each expert is chosen against how often it is the best one."""
    figure, (left, right) = canvas(9.6, 5.4, 1, 2, sharey=True)
    for name, label, color, marker in (
        ("tdef", "TDEF", GREY, "s"),
        ("mild", "MILD, m from P", OURS, "o"),
    ):
        found = [each for each in networks if each.cell.method == name]
        best = np.concatenate([each.optimal for each in found]) if found else []
        chosen = np.concatenate([each.shares for each in found]) if found else []
        left.plot(best, chosen, marker, color=color, label=label, ms=5, alpha=0.6)
    both = [(table, each) for table, each in lines if "mild-mass" in each.shares]
    for name, label, color, marker in (
        ("tdef", "TDEF", GREY, "s"),
        ("mild-mass", "m from P, argmax, untuned", OURS, "o"),
        ("mild", "winner counts, argmax, untuned", BLUE, "^"),
    ):
        best = [share for _, each in both for share in each.optimal]
        chosen = [share for _, each in both for share in each.shares[name]]
        right.plot(best, chosen, marker, color=color, label=label, ms=5, alpha=0.7)
    for axes, title in ((left, "small networks, tuned"), (right, "linear routers")):
        axes.plot([0, 1], [0, 1], color="black", lw=1)
        axes.set(xlim=(0, 1), ylim=(0, 1), title=title, xlabel="share in which the expert is best")
        axes.legend(loc="upper left", fontsize=11)
    left.set_ylabel("share in which it is chosen")
    save(figure, str(Path(__file__).with_name("paper_shares.py")))


def main() -> None:
    """Draw both."""
    results, networks = read_store(STORE, SEEDS), read_results(network_file(STORE))
    lines = [
        (name, each) for name in IMAGE_TABLES for each in figures_of(TABLES[name], results, SEEDS)
    ]
    draw_forest(lines, networks)
    draw_shares(lines, widest(networks))


if __name__ == "__main__":
    main()
