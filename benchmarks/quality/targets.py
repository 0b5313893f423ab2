"""Do targets keep their promise?

Money saved at a quality, score within a budget, and what was promised against what was served.

Run: MILDROUTE_DATA=... python benchmarks/quality/targets.py [--json] [--quick] [--store FOLDER]
[--draws 20] [--methods default,coin,...]

Each draw takes other training rows; all other rows of the set are test rows. The default is what
``mildroute fit`` makes with its default encoder; kNN, ridge and TDEF are put on a convex hull of
their own, with the same folds, on vectors that are made once for the three. Cells that are stored
already are not computed again. A complete run writes results/targets.*; there the earlier default
(a target stood on a step of its curve, and another router was stored than those that were measured)
has the figures of commit fcdd799 on the same draws.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import run_cells
from rows import Row, main
from targets_report import Cell, bounded_rows, quick_rows, write_targets
from tasks import FOUR, PRO_FOUR, data_folder

from mildroute import fit
from mildroute.costs.table import CostTable
from mildroute.exceptions import UnreachableTargetError
from mildroute.fitting.fold_vectors import fold_vectors
from mildroute.fitting.targets import default_price_weights
from mildroute.fitting.text_router import DEFAULT_ENCODER
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.measurement import measure_curve
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.knn import KNNRouter
from mildroute.routers.regression import RegressionRouter
from mildroute.routers.surrogate import TDEFRouter
from mildroute.routers.training_rows import FoldVectors

THREE = ("gpt-4o-2024-05-13", "mixtral-8x22b", "Llama-2-7b-hf")
# Name of the set, experts and dollars per 1,000 queries; RouterBench has the real dollars of each
# call and all its experts.
SETS: dict[str, tuple[str, tuple[str, ...] | None, tuple[float, ...] | None]] = {
    "mmlu57 three": ("mmlu57", THREE, (3.1, 0.9, 0.1)),
    "mmlu57 four": ("mmlu57", FOUR, (0.2, 0.2, 0.9, 5.0)),
    "mmlu_pro four": ("mmlu_pro", PRO_FOUR, (0.2, 0.35, 0.9, 5.0)),
    "routerbench": ("routerbench_subset", None, None),
}
ROWS = (500, 1000, 3000)
# RouterBench has 3,148 rows: 3,000 would leave 148 to test on.
CELLS = [(task, rows) for task in SETS for rows in ROWS if (task, rows) != ("routerbench", 3000)]
# Shares of the best single expert's score; places between the bill of the cheapest and of the most
# expensive expert.
QUALITIES, BUDGETS = (0.90, 0.95, 0.99), (0.25, 0.5, 0.75)
# Settings were chosen on draws 0 to 11.
FIRST_DRAW, DRAWS = 1000, 20
BASELINES: dict[str, Any] = {"ridge": RegressionRouter, "kNN": KNNRouter, "TDEF": TDEFRouter}
METHODS = ("default", "coin", *BASELINES)


class Encoded(NamedTuple):
    """Vectors of all rows by one encoder, and those of encoders that have not seen a fold."""

    train: Any
    folds: list[FoldVectors] | None
    test: Any


@dataclass(frozen=True)
class Draw:
    """Training rows and the test rows of one draw."""

    train: CostTable
    test: CostTable

    @cached_property
    def encoded(self) -> Encoded:
        """Vectors for all baselines: nine tenths of the time of a ridge's cell."""
        encoder, inputs = DEFAULT_ENCODER(), list(self.train.inputs)
        vectors = encoder.fit_transform(inputs)
        folds = fold_vectors(encoder, inputs, vectors, FrontierRouter(random_state=0))
        return Encoded(vectors, folds, encoder.transform(list(self.test.inputs)))


@cache
def table_of(task: str) -> CostTable:
    name, experts, prices = SETS[task]
    source = pq.read_table(data_folder() / f"{name}.parquet")
    names = experts or tuple(
        column.removeprefix("score:")
        for column in source.column_names
        if column.startswith("score:")
    )
    columns = {"query_id": source["query_id"], "input": source["text"], "group": source["group"]}
    columns |= {f"score:{expert}": source[f"score:{expert}"] for expert in names}
    for place, expert in enumerate(names):
        flat = None if prices is None else pa.array(np.full(source.num_rows, prices[place] / 1000))
        columns[f"cost:{expert}"] = source[f"cost:{expert}"] if flat is None else flat
    return CostTable.from_data(pa.table(columns))


def drawn(task: str, rows: int, draw: int) -> Draw:
    table = table_of(task)
    order = np.random.default_rng(draw).permutation(len(table))
    return Draw(table.take(order[:rows]), table.take(order[rows:]))


def targets_of(train: CostTable) -> Iterator[tuple[str, float, float]]:
    """Kind, name and value of each target."""
    bills = 1000 * np.asarray(train.dollars).mean(axis=0)
    yield from (("quality", share, share) for share in QUALITIES)
    yield from (
        ("budget", place, float(bills.min() + place * (bills.max() - bills.min())))
        for place in BUDGETS
    )


def run_draw(task: str, rows: int, draw: int, methods: tuple[str, ...], folder: Path) -> str:
    """All targets of each method on one draw; what a method did is kept as a file of its own."""
    start = time.process_time()
    data = drawn(task, rows, draw)
    for method in methods:
        target = folder / f"{task.replace(' ', '_')}_{rows}_{draw}_{method}.json"
        if target.exists():
            continue
        cell = {"task": task, "rows": rows, "draw": draw, "method": method}
        partial = target.with_suffix(".partial")
        partial.write_text(json.dumps([found | cell for found in served(data, method)]))
        partial.rename(target)
    return f"{task}, {rows} rows, draw {draw}: {time.process_time() - start:.0f} s"


def served(data: Draw, method: str) -> Iterator[dict[str, Any]]:
    start = time.process_time()
    curve, choose = fitted(data, method)
    cpu = time.process_time() - start
    scores, dollars = np.asarray(data.test.scores), 1000 * np.asarray(data.test.dollars)
    vectors = choose.vectors(data)
    for kind, name, value in targets_of(data.train):
        try:
            point = (
                curve.for_quality(value, 0.95, 1000)
                if kind == "quality"
                else curve.for_budget(value, 0.95, 1000)
            )
        except UnreachableTargetError:
            point = curve.point(
                int(
                    curve.singles[
                        curve.best if kind == "quality" else curve.dollars[curve.singles].argmin()
                    ]
                ),
                0.95,
                1000,
            )
        score, bill = choose.outcome(point, vectors, scores, dollars)
        yield {
            "kind": kind,
            "target": name,
            "value": value,
            "score": score,
            "bill": bill,
            "best_score": float(scores[:, point.best].mean()),
            "best_bill": float(dollars[:, point.best].mean()),
            "expected_score": point.score,
            "expected_bill": point.dollars_per_1000,
            "bill_low": point.dollars_interval[0],
            "bill_high": point.dollars_interval[1],
            "cpu": cpu,
        }


class Chooser(NamedTuple):
    """A fitted frontier, or none for a coin between single experts.

    The encoder is none if the vectors of the draw are used.
    """

    router: FrontierRouter | None
    encoder: Any

    def vectors(self, data: Draw) -> Any:
        """Vectors of the test rows."""
        if self.router is None:
            return None
        return self.encoder.transform(list(data.test.inputs)) if self.encoder else data.encoded.test

    def outcome(
        self,
        point: OperatingPoint,
        vectors: Any,
        scores: NDArray[np.float64],
        dollars: NDArray[np.float64],
    ) -> tuple[float, float]:
        """Score and bill on the test rows; of a coin alone its expectation."""
        if self.router is None:
            ends = [(vertex.probability, int(vertex.expert or 0)) for vertex in point.vertices]
            return tuple(
                float(sum(chance * values[:, expert].mean() for chance, expert in ends))
                for values in (scores, dollars)
            )  # type: ignore[return-value]
        choice, rows = self.router.predict(vectors, point=point), np.arange(len(scores))
        return float(scores[rows, choice].mean()), float(dollars[rows, choice].mean())


def fitted(data: Draw, method: str) -> tuple[CostQualityCurve, Chooser]:
    train = data.train
    if method == "default":
        router = fit(train, seed=0).router
        return router.router_.curve, Chooser(router.router_, router.encoder_)
    errors, dollars = 1 - np.asarray(train.scores), np.asarray(train.dollars)
    if method == "coin":
        no_choices = np.empty((0, len(errors)), dtype=np.intp)
        return measure_curve([], no_choices, errors, dollars), Chooser(None, None)
    frontier = FrontierRouter(
        router=BASELINES[method](), price_weights=default_price_weights(dollars), random_state=0
    )
    vectors, folds, _ = data.encoded
    frontier.fit_rows(
        frontier.training_rows(vectors, errors, prices=dollars, groups=train.groups, folds=folds)
    )
    return frontier.curve, Chooser(frontier, None)


def run_all(
    cells: list[tuple[str, int]], draws: range, methods: tuple[str, ...], folder: Path
) -> None:
    jobs = [(task, rows, draw, methods, folder) for draw in draws for task, rows in cells]
    run_cells(run_draw, jobs)


def stored(folder: Path) -> list[Cell]:
    return [
        Cell(**cell)
        for path in sorted(folder.glob("*.json"))
        for cell in json.loads(path.read_text())
    ]


def measure(quick: bool, store: Path | None, draws: int, methods: str) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if quick:
            run_all(
                [("mmlu57 three", 500)],
                range(FIRST_DRAW, FIRST_DRAW + 2),
                ("default", "coin"),
                folder,
            )
            yield from quick_rows(stored(folder))
            return
        run_all(CELLS, range(FIRST_DRAW, FIRST_DRAW + draws), tuple(methods.split(",")), folder)
        results = HERE.parent / "results"
        cells = write_targets(
            stored(folder), results, command="python benchmarks/quality/targets.py"
        )
        yield from bounded_rows(cells)


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--store": {"type": Path},
            "--draws": {"type": int, "default": DRAWS},
            "--methods": {"default": ",".join(METHODS)},
        },
    )
