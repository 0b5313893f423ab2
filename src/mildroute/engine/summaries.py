"""From stored results to the figures of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mildroute.engine.cells import Cell, Method
from mildroute.engine.comparisons import Gap, Spread, gap_between, spread_of
from mildroute.engine.paper_tables import Line, PaperTable, Printed, printed_figures
from mildroute.engine.results import Result

__all__ = ["LineFigures", "figures_of", "results_of"]

BASELINE = "tdef"


@dataclass(frozen=True)
class LineFigures:
    """What was found on one line of a table.

    Args:
        line: The line.
        spreads: Loss of each method that has results.
        gaps: Difference of each of them to TDEF, TDEF itself left out.
        best_single: Mean cost of the single expert that was best on the training rows.
        oracle: Mean cost of the best expert of each row.
        optimal: How often each expert is the best one, the first of equals.
        shares: How often each method chooses each expert.
        printed: The paper's figures by the paper's name of the method.

    Example:
        >>> LineFigures.__name__  # made by figures_of
        'LineFigures'
    """

    line: Line
    spreads: dict[str, Spread]
    gaps: dict[str, Gap]
    best_single: float
    oracle: float
    optimal: tuple[float, ...]
    shares: dict[str, tuple[float, ...]]
    printed: dict[str, Printed]


def results_of(line: Line, method: str, results: Mapping[str, Result], seeds: int) -> dict[int, Result]:
    """Stored results of a method on a line, by seed.

    Args:
        line: The line.
        method: Name of the method.
        results: Results by key.
        seeds: How many seeds to look for.

    Returns:
        Those that are there.

    Example:
        >>> from mildroute.engine.paper_tables import TABLES
        >>> results_of(TABLES["1a"].lines[0], "tdef", {}, 5)
        {}
    """
    keys = {seed: Cell(line.data, line.experts, line.costs, Method(method, line.network), seed).key for seed in range(seeds)}
    return {seed: results[key] for seed, key in keys.items() if key in results}


def figures_of(table: PaperTable, results: Mapping[str, Result], seeds: int) -> list[LineFigures]:
    """Figures of the lines of a table on which TDEF has results.

    Args:
        table: The table.
        results: Results by key.
        seeds: How many seeds to look for.

    Returns:
        One a line.

    Example:
        >>> from mildroute.engine.paper_tables import TABLES
        >>> figures_of(TABLES["1a"], {}, 5)
        []
    """
    found = [_line_figures(table, line, results, seeds) for line in table.lines]
    return [each for each in found if each is not None]


def _line_figures(table: PaperTable, line: Line, results: Mapping[str, Result], seeds: int) -> LineFigures | None:
    known = {method: results_of(line, method, results, seeds) for method in table.methods}
    known = {method: by_seed for method, by_seed in known.items() if by_seed}
    if BASELINE not in known:
        return None
    baseline = list(known[BASELINE].values())
    printed = {
        each.method: each for each in printed_figures().values() if (each.table, each.row) == (table.frozen or table.name, line.printed)
    }
    return LineFigures(
        line=line,
        spreads={method: spread_of(list(by_seed.values())) for method, by_seed in known.items()},
        gaps={method: gap_between(by_seed, known[BASELINE]) for method, by_seed in known.items() if method != BASELINE},
        best_single=float(np.mean([result.best_single for result in baseline])),
        oracle=float(np.mean([result.oracle for result in baseline])),
        optimal=tuple(np.mean([result.optimal for result in baseline], axis=0).tolist()),
        shares={method: tuple(np.mean([each.shares for each in by_seed.values()], axis=0).tolist()) for method, by_seed in known.items()},
        printed=printed,
    )
