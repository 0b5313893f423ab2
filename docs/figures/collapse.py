"""Recall of the expert served worst as specialists get scarcer.

Task 10 of the quality benchmark, from its stored results.
"""

from __future__ import annotations

import pyarrow.parquet as pq
from drawing import BLUE, GOLD, GREEN, GREY, OURS, PURPLE, ROOT, canvas, save

LINES = {
    "weighted CE": (GREY, "--"),
    "LDAM": (PURPLE, "-."),
    "MildRouter()": (OURS, "-"),
    "TDEF": (BLUE, "-"),
    "kNN": (GOLD, "-"),
    "linear regression": (GREEN, "-"),
    "MILD, winner counts": (GREY, ":"),
}
PREFIX = "10 synthetic 1:"


def sweep() -> list[tuple[int, str, float]]:
    """Ratio, method and worst recall, means over ten seeds."""
    rows = pq.read_table(ROOT / "benchmarks" / "results" / "quality.parquet").to_pylist()
    return [
        (int(row["task"].removeprefix(PREFIX)), row["method"], row["worst_recall"])
        for row in rows
        if row["task"].startswith(PREFIX)
    ]


def main() -> None:
    """Draw it."""
    figure, axes = canvas(6.4, 5.2)
    found = sweep()
    for method, (colour, dashes) in LINES.items():
        points = sorted((ratio, recall) for ratio, name, recall in found if name == method)
        axes.plot(
            *zip(*points, strict=True),
            dashes,
            color=colour,
            label=method,
            lw=3 if method == "MildRouter()" else 2,
        )
    ratios = sorted({ratio for ratio, _, _ in found})
    axes.set(
        xscale="log",
        xlabel="wins of the common expert for one of a specialist",
        ylabel="lowest share, over experts, of the\nrows it wins that reach it",
    )
    axes.set_xticks(ratios, [str(ratio) for ratio in ratios])
    axes.minorticks_off()
    axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.45, 1.0))
    save(figure, __file__)


if __name__ == "__main__":
    main()
