"""What routing gains on nine tasks of real answers, with 95% intervals.

The figures are from the stored results of the quality benchmark.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from drawing import GREY, OURS, ROOT, canvas, save


def gains() -> list[tuple[str, float, float, float, bool]]:
    """Return task, share, its interval, and whether it is significant.

    The share is that of the way from the best single expert to the oracle.
    """
    rows = pq.read_table(ROOT / "benchmarks" / "results" / "quality.parquet").to_pylist()
    by_name: dict[tuple[str, str], dict[str, Any]] = {
        (row["task"], row["method"]): row for row in rows
    }
    found = []
    for (task, method), row in by_name.items():
        if method == "best single":
            room = row["cost"] - by_name[task, "oracle"]["cost"]
            shares = [
                -100 * row[name] / room
                for name in ("default_minus_method", "difference_high", "difference_low")
            ]
            found.append((task, shares[0], shares[1], shares[2], bool(row["significant"])))
    return found


def main() -> None:
    """Draw it."""
    figure, axes = canvas(6.4, 4.8)
    for place, (_, share, low, high, sure) in enumerate(reversed(gains())):
        colour = OURS if sure else GREY
        axes.errorbar(
            share,
            place,
            xerr=[[share - low], [high - share]],
            fmt="o",
            color=colour,
            capsize=4,
            markersize=8,
        )
    axes.axvline(0, color="black", lw=1)
    axes.set_yticks(range(9), [task for task, *_ in reversed(gains())])
    axes.set_xlabel("% of the way from best single to oracle")
    axes.set_title("red: significant; grey: not")
    save(figure, __file__)


if __name__ == "__main__":
    main()
