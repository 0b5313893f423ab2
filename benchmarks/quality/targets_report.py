"""What the stored cells of ``targets.py`` say: bounded rows, a table and a Parquet of results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cells import origin_of
from rows import Row, at_least, at_most, reported

# What the default must save on the first task at 0.95.
BEST = {500: 0.35, 1000: 0.40, 3000: 0.45}
EARLIER = "steps"


@dataclass(frozen=True)
class Cell:
    """One target of one method on one draw.

    What was asked, what was expected, what came of it on the test rows.
    """

    task: str
    rows: int
    draw: int
    method: str
    kind: str
    target: float
    value: float
    score: float
    bill: float
    best_score: float
    best_bill: float
    expected_score: float
    expected_bill: float
    bill_low: float
    bill_high: float
    cpu: float

    @property
    def saved(self) -> float:
        """Share of the bill of the best single expert by score."""
        return 1 - self.bill / self.best_bill

    @property
    def kept(self) -> float:
        """Share of that expert's score."""
        return self.score / self.best_score

    @property
    def is_met(self) -> bool:
        return (
            self.kept >= self.value - 1e-9
            if self.kind == "quality"
            else self.bill <= self.value * (1 + 1e-9)
        )

    @property
    def is_covered(self) -> bool:
        return self.bill_low * (1 - 1e-9) <= self.bill <= self.bill_high * (1 + 1e-9)

    @property
    def gain(self) -> float:
        """What a method is compared by: money saved at a quality, score within a budget."""
        return self.saved if self.kind == "quality" else self.score


Key = tuple[str, int, str, float]


def by_draw(
    cells: list[Cell], method: str, figure: Callable[[Cell], float]
) -> dict[Key, dict[int, float]]:
    found: dict[Key, dict[int, float]] = {}
    for cell in cells:
        if cell.method == method:
            found.setdefault((cell.task, cell.rows, cell.kind, cell.target), {})[cell.draw] = (
                figure(cell)
            )
    return found


def paired(cells: list[Cell], ours: str, theirs: str) -> dict[Key, NDArray[np.float64]]:
    """Gain of one method minus that of another on the draws that both have."""
    left, right = (by_draw(cells, method, lambda cell: cell.gain) for method in (ours, theirs))
    return {
        key: np.array(
            [
                left[key][draw] - right[key][draw]
                for draw in sorted(left[key].keys() & right[key].keys())
            ]
        )
        for key in left
        if key in right and left[key].keys() & right[key].keys()
    }


def below(differences: dict[Key, NDArray[np.float64]]) -> list[str]:
    """Cells in which a method is significantly below another.

    Paired t-test, two-sided at 5%, each cell by itself.
    """
    found = []
    for key, gaps in differences.items():
        if (
            len(gaps) > 2
            and gaps.std() > 1e-12
            and gaps.mean() < 0
            and stats.ttest_1samp(gaps, 0.0).pvalue < 0.05
        ):
            found.append(f"{key[0]}, {key[1]} rows, {key[2]} {key[3]:g}: {gaps.mean():+.4f}")
    return found


def collapses(cells: list[Cell]) -> list[str]:
    """Draws in which the default saves under 5% and the coin over 15%."""
    ours, coin = (by_draw(cells, method, lambda cell: cell.saved) for method in ("default", "coin"))
    return [
        f"{key[0]}, {key[1]} rows, {key[3]:g}, draw {draw}"
        for key, draws in ours.items()
        if key[2] == "quality"
        for draw, saved in draws.items()
        if saved < 0.05 and coin.get(key, {}).get(draw, 0.0) > 0.15
    ]


def mean_gain(cells: list[Cell], method: str, kind: str, draws: set[int]) -> float:
    """Mean over cells of the mean over draws."""
    found = by_draw([cell for cell in cells if cell.draw in draws], method, lambda cell: cell.gain)
    return float(
        np.mean([np.mean(list(values.values())) for key, values in found.items() if key[2] == kind])
    )


def bounded_rows(cells: list[Cell]) -> Iterator[Row]:
    ours = [cell for cell in cells if cell.method == "default"]
    lost = below(paired(cells, "default", "coin"))
    yield at_most(
        "cells in which the default is significantly below the coin", len(lost), 0, "; ".join(lost)
    )
    fallen = collapses(cells)
    yield at_most("draws in which the default collapses", len(fallen), 0, "; ".join(fallen))
    rivals = sorted({cell.method for cell in cells} - {"default", EARLIER})
    for kind, name in (
        ("quality", "mean saving at a quality"),
        ("budget", "mean score within a budget"),
    ):
        for rival in rivals:
            shared = {cell.draw for cell in cells if cell.method == rival}
            note = f"{len(shared)} draws; the limit is that of {rival}"
            yield at_least(
                f"{name}, beside {rival}",
                mean_gain(cells, "default", kind, shared),
                mean_gain(cells, rival, kind, shared),
                note,
            )
    first = by_draw(ours, "default", lambda cell: cell.saved)
    for rows, limit in BEST.items():
        values = list(first["mmlu57 three", rows, "quality", 0.95].values())
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        note = f"{len(values)} draws, standard error {error:.3f}, worst {min(values):.3f}"
        yield at_least(
            f"saved at 0.95, mmlu57 three, {rows:,} rows", float(np.mean(values)), limit, note
        )
    kept = [cell.is_met for cell in ours if cell.kind == "quality"]
    yield at_least(
        "share of draws in which the promised quality is met",
        float(np.mean(kept)),
        0.93,
        f"{len(kept)} promises",
    )
    yield at_least(
        "share of bills within their interval",
        float(np.mean([cell.is_covered for cell in ours])),
        0.90,
        f"{len(ours)} bills",
    )
    spent = [cell for cell in ours if cell.kind == "budget"]
    yield reported(
        "share of draws in which the budget is met", float(np.mean([cell.is_met for cell in spent]))
    )
    yield reported(
        "share of the budget that is used",
        float(np.mean([cell.bill / cell.value for cell in spent])),
    )
    yield reported(
        "CPU seconds of a fit",
        float(np.mean([cell.cpu for cell in ours])),
        "encoders of the folds included",
    )


def quick_rows(cells: list[Cell]) -> Iterator[Row]:
    ours = [cell for cell in cells if cell.method == "default"]
    yield at_most("draws in which the default collapses", len(collapses(cells)), 0)
    for kind, slack in (("quality", 0.03), ("budget", 0.01)):
        gaps = np.concatenate(
            [values for key, values in paired(cells, "default", "coin").items() if key[2] == kind]
        )
        yield at_least(
            f"default minus coin, {kind}, mean", float(gaps.mean()), -slack, f"{len(gaps)} targets"
        )
    yield at_least(
        "share of bills within their interval",
        float(np.mean([cell.is_covered for cell in ours])),
        0.8,
        f"{len(ours)} bills",
    )
    yield reported(
        "share of draws in which the promise is met", float(np.mean([cell.is_met for cell in ours]))
    )


def write_targets(cells: list[Cell], folder: Path, *, command: str) -> list[Cell]:
    """Write targets.parquet and targets.md.

    Figures of the earlier default, which this code cannot make, are kept from the last run.
    """
    kept = [cell for cell in read_targets(folder / "targets.parquet") if cell.method == EARLIER]
    every = [*cells, *(kept if not any(cell.method == EARLIER for cell in cells) else [])]
    origin = origin_of(
        ("mildroute", "numpy", "scikit-learn", "scipy"),
        command=command,
        draws=f"{min(cell.draw for cell in every)} to {max(cell.draw for cell in every)}",
    )
    table = pa.Table.from_pylist([asdict(cell) for cell in every]).replace_schema_metadata(origin)
    pq.write_table(table, folder / "targets.parquet", compression="zstd")
    (folder / "targets.md").write_text(markdown(every, origin), encoding="utf-8")
    return every


def read_targets(path: Path) -> list[Cell]:
    return [Cell(**row) for row in pq.read_table(path).to_pylist()] if path.exists() else []


NAMES = {
    "default": "default",
    "coin": "coin",
    "ridge": "ridge",
    "kNN": "kNN",
    "TDEF": "TDEF",
    EARLIER: "earlier default",
}


def markdown(cells: list[Cell], origin: dict[str, str]) -> str:
    methods = [name for name in NAMES if any(cell.method == name for cell in cells)]
    draws = {name: len({cell.draw for cell in cells if cell.method == name}) for name in methods}
    head = (
        "| task | rows | target | "
        + " | ".join(f"{NAMES[name]} ({draws[name]})" for name in methods)
        + " |"
    )
    rule = "|---|--:|--:|" + "--:|" * len(methods)
    lines = [
        "# Targets that keep their promise",
        "",
        (
            "Mean over draws of training rows, with its standard error; in brackets in the head,"
            " the number of draws. Generated; do not edit."
        ),
        "",
        *(f"- {name}: {value}" for name, value in origin.items()),
        "",
        "## Money saved at a quality",
        "",
        (
            "Share of the bill of the best single expert by score that is saved when that share of"
            " its score is to be kept (95% confidence)."
        ),
        "",
        head,
        rule,
        *_table(cells, methods, "quality", lambda cell: cell.saved, "{:.3f} ± {:.3f}"),
        "",
        "## Promises met",
        "",
        "Share of draws in which the test rows keep the quality that was promised.",
        "",
        head,
        rule,
        *_table(cells, methods, "quality", lambda cell: float(cell.is_met), "{:.2f}"),
        "",
        "## Score within a budget",
        "",
        (
            "Budgets at a quarter, half and three quarters between the bill of the cheapest and of"
            " the most expensive expert."
        ),
        "",
        head,
        rule,
        *_table(cells, methods, "budget", lambda cell: cell.score, "{:.4f} ± {:.4f}"),
        "",
        "## Share of the budget that is used",
        "",
        head,
        rule,
        *_table(cells, methods, "budget", lambda cell: cell.bill / cell.value, "{:.2f}"),
        "",
        "## Bills within their 95% interval",
        "",
        head,
        rule,
        *_table(cells, methods, "quality", lambda cell: float(cell.is_covered), "{:.2f}"),
    ]
    return "\n".join([*lines, ""])


def _table(
    cells: list[Cell], methods: list[str], kind: str, figure: Callable[[Cell], float], form: str
) -> Iterator[str]:
    found = {method: by_draw(cells, method, figure) for method in methods}
    keys = dict.fromkeys(
        (cell.task, cell.rows, cell.kind, cell.target) for cell in cells if cell.kind == kind
    )
    for key in sorted(
        keys,
        key=lambda key: (list(dict.fromkeys(k[0] for k in keys)).index(key[0]), key[1], key[3]),
    ):
        shown = []
        for method in methods:
            values = list(found[method].get(key, {}).values())
            error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
            shown.append(form.format(np.mean(values), error) if values else "")
        yield f"| {key[0]} | {key[1]:,} | {key[3]:g} | " + " | ".join(shown) + " |"
