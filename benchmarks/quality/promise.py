"""Is the promised quality kept on the tables that people have?

Prompts that repeat, ids in the text, templates, groups, conversations; few rows; new kinds of
prompts.

Run: MILDROUTE_DATA=... python benchmarks/quality/promise.py [--json] [--quick] [--store FOLDER]
[--draws 20] [--minutes 240]

Each draw makes a table of one kind from prompts of one set, fits on it as ``mildroute fit`` does,
and measures on prompts of the same set that are not in it. Every fourth draw fits with
``thorough="auto"``, the others with ``thorough=False``. Draws come one after the other over all
kinds, sets and sizes, so that a run that is stopped by ``--minutes`` has seen all of them; cells
that are stored already are not computed again. A run without ``--quick`` writes results/promise.*.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import RESULTS, origin_of, run_cells, write_report
from promise_tables import KINDS, NOISY, POOLS, drawn, other_groups
from rows import Row, at_least, at_most, main, reported

from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError
from mildroute.fitting.fit import FitOptions, fit_table
from mildroute.fitting.targets import operating_point
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.target import Target

QUALITIES = (0.90, 0.95, 0.99)
# Settings were chosen on draws 5,000 to 5,005 of the first six sets.
FIRST_DRAW, DRAWS = 0, 20
SIZES, LARGE, LARGE_DRAWS = (300, 60, 120), 1000, 8
NEW_GROUPS = "new groups"
# Sets with groups, and draws of each, in which half of the groups are new.
GROUPED, GROUPED_DRAWS = ("mmlu three", "mmlu_pro four", "bbh four", "specialists"), 10
# Normal quantile of a one-sided test at 5%.
_SURE = 1.645
_FEWEST_TESTED = 200


def run_draw(kind: str, task: str, rows: int, draw: int, folder: Path, until: float) -> str:
    target = folder / f"{kind}_{task}_{rows}_{draw}.json".replace(" ", "_")
    if target.exists() or time.time() > until:
        return "not run"
    draw_tables = other_groups if kind == NEW_GROUPS else partial(drawn, kind)
    try:
        train, test = draw_tables(task, rows, draw)
        found = [] if len(test) < _FEWEST_TESTED else list(measured(train, test, draw))
    except TableError:  # a set of 721 prompts has none left beside 1,000
        found = []
    cell = {"kind": kind, "task": task, "rows": rows, "draw": draw}
    unfinished = target.with_suffix(".partial")
    unfinished.write_text(json.dumps([each | cell for each in found]))
    unfinished.rename(target)
    return f"{kind}, {task}, {rows} rows, draw {draw}"


def measured(train: CostTable, test: CostTable, draw: int) -> Iterator[dict[str, Any]]:
    start = time.process_time()
    thorough: Any = "auto" if draw % 4 == 3 else False
    fitted = fit_table(train, FitOptions(target=Target("quality", 0.95), thorough=thorough))
    cpu = time.process_time() - start
    router, scores, dollars = fitted.router, test.scores, np.asarray(test.dollars)
    curve = router.router_.curve
    vectors = router.encoder_.transform(test.inputs)
    mixes = curve.single_experts()
    for quality in QUALITIES:
        point = fitted.point
        if quality != 0.95:
            point, _ = operating_point(router.router_, Target("quality", quality))
        mix = mixes.for_quality(quality, 0.95, 1000)
        ids = [f"{draw}-{name}" for name in test.query_ids]
        choice = router.router_.predict(vectors, point=point, request_ids=ids)
        yield {
            **outcome(choice, point, scores, dollars, quality),
            **intervals(point),
            "quality": quality,
            "mix_saved": 1 - bill_of(mix, dollars) / dollars[:, point.baseline].mean(),
            "mix_kept": score_of(mix, scores) / scores[:, mix.best].mean(),
            "uses_router": point.uses_router,
            "clusters": len(train.clusters),
            "new_groups": None if fitted.new_groups is None else fitted.new_groups.kept,
            "cpu": cpu,
        }


def outcome(
    choice: NDArray[np.intp],
    point: OperatingPoint,
    scores: NDArray[np.float64],
    dollars: NDArray[np.float64],
    quality: float,
) -> dict[str, Any]:
    every = np.arange(len(choice))
    score, best = scores[every, choice], scores[:, point.best]
    gap = score - quality * best
    error = gap.std() / np.sqrt(len(gap))
    return {
        "kept": score.mean() / best.mean(),
        "kept_of_truly_best": score.mean() / scores.mean(axis=0).max(),
        "is_surely_broken": bool(gap.mean() < -_SURE * error),
        "score": score.mean(),
        "saved": 1 - dollars[every, choice].mean() / dollars[:, point.baseline].mean(),
        # Of the mean on this test set, for an interval is about the truth.
        "kept_error": float(gap.std() / np.sqrt(len(gap)) / best.mean()),
    }


def intervals(point: OperatingPoint) -> dict[str, Any]:
    return {
        "promised_kept": point.kept,
        "kept_interval": point.kept_interval,
        "promised_saved": point.saved,
        "saved_interval": point.saved_interval,
        "score_interval": point.score_interval,
    }


def bill_of(mix: OperatingPoint, dollars: NDArray[np.float64]) -> float:
    return sum(each.probability * dollars[:, each.expert or 0].mean() for each in mix.vertices)


def score_of(mix: OperatingPoint, scores: NDArray[np.float64]) -> float:
    return sum(each.probability * scores[:, each.expert or 0].mean() for each in mix.vertices)


def jobs_of(draws: int) -> Iterator[tuple[str, str, int, int]]:
    """Yield the cells draw by draw, so that a run that is stopped has seen every kind and size."""
    for draw in range(FIRST_DRAW, FIRST_DRAW + min(draws, GROUPED_DRAWS)):
        yield from ((NEW_GROUPS, task, 300, draw) for task in GROUPED)
    for draw in range(FIRST_DRAW, FIRST_DRAW + draws):
        sizes = (*SIZES, LARGE) if draw < FIRST_DRAW + LARGE_DRAWS else SIZES
        yield from ((kind, task, rows, draw) for rows in sizes for kind in KINDS for task in POOLS)


def stored(folder: Path) -> list[dict[str, Any]]:
    return [each for path in sorted(folder.glob("*.json")) for each in json.loads(path.read_text())]


def rows_of(cells: Sequence[dict[str, Any]]) -> Iterator[Row]:
    usual = [cell for cell in cells if cell["kind"] != NEW_GROUPS]
    for kind in KINDS:
        part = [cell for cell in usual if cell["kind"] == kind]
        if part:
            yield from promise_rows(kind, part)
    for size in sorted({cell["rows"] for cell in usual}):
        yield from promise_rows(f"{size} rows", [cell for cell in usual if cell["rows"] == size])
    yield from saving_rows(usual)
    yield from new_group_rows([cell for cell in cells if cell["kind"] == NEW_GROUPS])


def share(cells: Sequence[dict[str, Any]], holds: Callable[[dict[str, Any]], bool]) -> float:
    return float(np.mean([holds(cell) for cell in cells]))


def promise_rows(name: str, cells: Sequence[dict[str, Any]]) -> Iterator[Row]:
    for quality in QUALITIES:
        part = [cell for cell in cells if cell["quality"] == quality]
        kept = share(part, lambda cell: cell["kept"] >= cell["quality"] - 1e-9)
        true = share(part, lambda cell: cell["kept_of_truly_best"] >= cell["quality"] - 1e-9)
        worst = min(cell["kept"] for cell in part)
        used = share(part, lambda cell: cell["uses_router"])
        error = np.sqrt(kept * (1 - kept) / len(part))
        note = f"{len(part)} draws, standard error {error:.3f}; worst {worst:.3f}"
        note += f"; of the truly best {true:.3f}; the router is used in {used:.0%}"
        at = f"{name}, {quality:.2f}"
        if quality == 0.99:
            yield reported(f"{at}: kept", kept, note)
        else:
            yield at_least(f"{at}: kept", kept, 0.93, note)
        broken = share(part, lambda cell: cell["is_surely_broken"])
        yield at_most(f"{at}: surely broken", broken, 0.05)


def saving_rows(cells: Sequence[dict[str, Any]]) -> Iterator[Row]:
    for size in sorted({cell["rows"] for cell in cells}):
        for quality in (0.90, 0.95):
            part = [cell for cell in cells if (cell["rows"], cell["quality"]) == (size, quality)]
            gain = np.array([cell["saved"] - cell["mix_saved"] for cell in part])
            error = gain.std() / np.sqrt(len(gain))
            saved = np.mean([cell["saved"] for cell in part])
            yield at_least(
                f"{size} rows, {quality:.2f}: saved beyond the mix by the same rule",
                float(gain.mean()),
                -2 * float(error),
                f"standard error {error:.4f}; saved {saved:.3f} of the highest bill",
            )
    for size in sorted({cell["rows"] for cell in cells}):
        part = [cell for cell in cells if cell["rows"] == size]
        inside = share(part, lambda cell: _covers(cell, "saved"))
        name = f"{size} rows: the interval of the saving covers"
        yield at_least(name, inside, 0.93, f"{len(part)} points")
        yield from _score_coverage(size, part)


def _score_coverage(size: int, cells: Sequence[dict[str, Any]]) -> Iterator[Row]:
    """Yield how often the score on the test rows lies in its interval.

    The interval is about new prompts that are graded like the training rows. Tables whose training
    scores come from a judge that errs are therefore counted on their own.
    """
    noisy = [cell for cell in cells if cell["kind"] in NOISY]
    alike = [cell for cell in cells if cell["kind"] not in NOISY]
    name = f"{size} rows: the interval of the score covers"
    for suffix, part, why in (
        ("", alike, "the interval is about the mean of a batch, not about these test rows"),
        (", judge that errs", noisy, "training scores are wrong on a tenth, test scores are not"),
    ):
        if part:
            inside = share(part, lambda cell: _covers(cell, "score"))
            yield reported(name + suffix, inside, f"{len(part)} points; {why}")


def _covers(cell: dict[str, Any], name: str) -> bool:
    low, high = cell[f"{name}_interval"]
    return bool(low - 1e-9 <= cell[name] <= high + 1e-9)


def new_group_rows(cells: Sequence[dict[str, Any]]) -> Iterator[Row]:
    part = [cell for cell in cells if cell["quality"] == 0.95 and cell["new_groups"] is not None]
    if not part:
        return
    covered = share(part, lambda cell: cell["kept"] >= cell["new_groups"][1])
    inside = share(part, lambda cell: cell["kept"] <= cell["new_groups"][2])
    kept = share(part, lambda cell: cell["kept"] >= 0.95)
    gap = np.mean([cell["kept"] - cell["new_groups"][0] for cell in part])
    wide = np.mean([cell["new_groups"][0] - cell["new_groups"][1] for cell in part])
    note = f"{len(part)} draws; real minus expected {gap:+.3f}; expected minus announced {wide:.3f}"
    yield at_least("new groups: the announced loss covers the real one", covered, 0.90, note)
    yield reported("new groups: at most the announced gain", inside)
    yield reported("new groups, 0.95: kept", kept, "the promise is about known groups")


def write_results(cells: Sequence[dict[str, Any]], rows: Sequence[Row]) -> None:
    plain = [
        {name: value for name, value in cell.items() if name != "new_groups"}
        | {
            f"{name}_{end}": cell[f"{name}_interval"][place]
            for name in _WITH_ENDS
            for place, end in _ENDS
        }
        for cell in cells
    ]
    names = [name for name in plain[0] if not name.endswith("_interval")]
    table = pa.table({name: [cell[name] for cell in plain] for name in names})
    origin = origin_of(("numpy", "scikit-learn"), command="python benchmarks/quality/promise.py")
    pq.write_table(table.replace_schema_metadata(origin), RESULTS / "promise.parquet")
    last = max(cell["draw"] for cell in cells)
    seeds = f"draws {FIRST_DRAW} to {last}, {len(cells):,} points; settings were chosen on others"
    title = "Is the promised quality kept on the tables that people have?"
    write_report("promise", title, rows, ("numpy", "scikit-learn"), seeds)


_WITH_ENDS = ("saved", "kept", "score")
_ENDS = ((0, "low"), (1, "high"))


def measure(quick: bool, store: Path | None, draws: int, minutes: float) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        jobs = list(jobs_of(draws))
        if quick:
            kinds = ("each prompt five times", "each prompt twice", "no repeats")
            jobs = [(kind, "mmlu three", 300, draw) for draw in (1, 2) for kind in kinds]
        until = time.time() + 60 * minutes
        run_cells(run_draw, [(*job, folder, until) for job in jobs])
        cells = stored(folder)
        rows = list(rows_of(cells))
        if quick:
            # Two draws of a set decide nothing but that no promise is far off.
            worst = min(cell["kept"] - cell["quality"] for cell in cells)
            yield at_least("kept minus promised, worst of 6 draws", worst, -0.05)
            return
        write_results(cells, rows)
        yield from rows


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--store": {"type": Path},
            "--draws": {"type": int, "default": DRAWS},
            "--minutes": {"type": float, "default": 240},
        },
    )
