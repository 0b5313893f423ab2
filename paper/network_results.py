"""Results of the network study: a JSON file for each cell, or one Parquet file of all cells."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from paper.network_study import StudyCell, edges_of, write_whole
from paper.summaries import Gap, gap_over_sets

__all__ = [
    "NetworkResult",
    "collect_cells",
    "network_gap",
    "pooled_gap",
    "read_results",
    "restore_cells",
    "widest",
]

_COMMAND = "python -m paper.network_study --store FOLDER --collect FILE"


@dataclass(frozen=True, eq=False)
class NetworkResult:
    """The result of a cell of the network study.

    Args:
        cell: The cell.
        scale: Chosen mean of the margins.
        weight_decay: Chosen weight decay.
        trials: Number of networks in the grid.
        edges: Edges of the grid that the choice lies at: ``"lowest scale"``, ``"highest scale"``,
            ``"lowest decay"`` or ``"highest decay"``.
        loss: Mean cost on the test rows.
        shares: Share of the rows on which each expert is chosen, shape (p,).
        optimal: Share of the rows on which each expert is the best one, shape (p,).
        paid: Cost on each test row, shape (n,).
        published_paid: The same at a scale of 1 and a weight decay of 0.001.
    """

    cell: StudyCell
    scale: float
    weight_decay: float
    trials: int
    edges: tuple[str, ...]
    loss: float
    shares: tuple[float, ...]
    optimal: tuple[float, ...]
    paid: NDArray[np.float64] = field(repr=False)
    published_paid: NDArray[np.float64] = field(repr=False)


def collect_cells(folder: Path, file: Path) -> int:
    """Write all cells of a folder to one Parquet file, sorted by name, and return their number.

    Cells of other grids that are already in the file stay in it.
    """
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    for row in rows:
        for name in ("cell", "settings", "trials"):
            row[name] = json.dumps(row[name], sort_keys=True)
    if file.is_file():
        new = {_grid_of(row) for row in rows}
        rows += [row for row in pq.read_table(file).to_pylist() if _grid_of(row) not in new]
    rows.sort(key=_grid_of)
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"command": _COMMAND})
    pq.write_table(table, file, compression="zstd", use_dictionary=True)
    return len(rows)


def _grid_of(row: dict[str, Any]) -> tuple[str, int]:
    """Return the name of a row's cell and the number of its trials."""
    return StudyCell(**json.loads(row["cell"])).name, len(json.loads(row["trials"]))


def restore_cells(file: Path, folder: Path) -> int:
    """Write a JSON file for each cell that a folder lacks, and return their number.

    If the Parquet file has several grids of a cell, the largest one counts.
    """
    restored = 0
    for row in sorted(pq.read_table(file).to_pylist(), key=_grid_of, reverse=True):
        for name in ("cell", "settings", "trials"):
            row[name] = json.loads(row[name])
        path = folder / f"{StudyCell(**row['cell']).name}.json"
        if not path.exists():
            write_whole(path, json.dumps(row))
            restored += 1
    return restored


def read_results(file: Path) -> list[NetworkResult]:
    """Return the results in a file of :func:`collect_cells`; a missing file has none."""
    if not file.is_file():
        return []
    return [_result(row) for row in pq.read_table(file).to_pylist()]


def widest(results: list[NetworkResult]) -> list[NetworkResult]:
    """Return the result on the largest grid of each cell."""
    best: dict[StudyCell, NetworkResult] = {}
    for each in results:
        if each.cell not in best or each.trials > best[each.cell].trials:
            best[each.cell] = each
    return list(best.values())


def network_gap(ours: list[NetworkResult], other: list[NetworkResult]) -> Gap | None:
    """Return the difference between two methods on one line, over the seeds that both have."""
    matrix = _differences(ours, other)
    return None if matrix is None else gap_over_sets([matrix])


def pooled_gap(results: list[NetworkResult], method: str, other: str) -> tuple[Gap, int] | None:
    """Return the mean difference over all lines that both methods have, and their number.

    Lines of one image set share test rows, so they are averaged row by row first.
    """
    by_set: dict[str, list[NDArray[np.float64]]] = {}
    for line in dict.fromkeys((each.cell.table, each.cell.row) for each in results):
        here = [each for each in results if (each.cell.table, each.cell.row) == line]
        matrix = _differences(
            *([each for each in here if each.cell.method == name] for name in (method, other))
        )
        if matrix is not None:
            by_set.setdefault(here[0].cell.line.data.name, []).append(matrix)
    if not by_set:
        return None
    matrices = []
    for lines in by_set.values():
        seeds = min(len(line) for line in lines)
        matrices.append(np.mean([line[:seeds] for line in lines], axis=0))
    return gap_over_sets(matrices), sum(len(lines) for lines in by_set.values())


def _differences(
    ours: list[NetworkResult], other: list[NetworkResult]
) -> NDArray[np.float64] | None:
    """Return paired differences on the largest grid that both methods have, or `None`.

    The shape is (seeds, rows).
    """
    others = {(each.cell.seed, each.trials): each for each in other}
    pairs = {
        each.cell.seed: each.paid - others[each.cell.seed, each.trials].paid
        for each in sorted(ours, key=lambda each: each.trials)
        if (each.cell.seed, each.trials) in others
    }
    rows = [pairs[seed] for seed in sorted(pairs)]
    return np.stack(rows) if rows else None


def _result(row: dict[str, Any]) -> NetworkResult:
    cell, trials = json.loads(row["cell"]), json.loads(row["trials"])
    chosen = trials[row["chosen"]]
    return NetworkResult(
        cell=StudyCell(**cell),
        scale=chosen["scale"],
        weight_decay=chosen["weight_decay"],
        trials=len(trials),
        edges=edges_of({"trials": trials, "chosen": row["chosen"]}),
        loss=float(chosen["test"]),
        shares=tuple(chosen["shares"]),
        optimal=tuple(row["optimal"]),
        paid=np.asarray(row["paid"], dtype=np.float64),
        published_paid=np.asarray(row["published_paid"], dtype=np.float64),
    )
