"""Does a second look pay? Cascades against routing by the question alone, on real answers.

Run: MILDROUTE_DATA=... python benchmarks/quality/cascade.py [--json] [--quick] [--store FOLDER]
[--seeds 10]

Eight pools: four experts of MMLU-Pro and four of ZeroEval, where the most expensive one costs .3,
.1 and .03 errors; five small models of MMLU-Pro and four of function calling (BFCL, real tokens),
where it costs .1. A cell is one split of one data set, and serves all its prices. Vectors of
questions are MiniLM's; answers are seen through :class:`~mildroute.encoders.answers.AnswerFeatures`
fitted on the training rows. Cells that are stored already are not computed again, and ``--seeds 0``
computes none and reports what is stored. It writes results/cascade.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, combinations, permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import run_cells, save_cell, write_report
from pairs import Difference, difference, holm, per_query
from rows import Row, at_least, at_most, main, reported
from tasks import PRO_FOUR, columns, data_folder, split

from mildroute.encoders.answers import AnswerFeatures, see_answers
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.routers.cascade.features import SeenAnswers
from mildroute.routers.cascade.router import CascadePath, CascadeRouter
from mildroute.routers.frontier.router import FrontierRouter

SMALL = (
    "Phi-3-mini-4k-instruct",
    "mathstral-7B",
    "Meta-Llama-3.1-8B-Instruct",
    "Mixtral-8x7B-Instruct-v0.1",
    "Meta-Llama-3.1-70B-Instruct",
)
ZERO = (
    "Meta-Llama-3.1-8B-Instruct",
    "gpt-4o-mini-2024-07-18",
    "Meta-Llama-3.1-70B-Instruct",
    "claude-3-5-sonnet-20240620",
)
CALLS = (
    "gpt-4o-mini-2024-07-18",
    "gpt-4o-2024-08-06",
    "claude-3-haiku-20240307",
    "claude-3-5-sonnet-20240620",
)
# Dollars per million tokens, list prices of mid-2024: input and output for function calls.
PRICES = {
    "mmlu_pro four": (0.2, 0.35, 0.9, 5.0),
    "mmlu_pro small": (0.1, 0.2, 0.2, 0.6, 0.9),
    "zeroeval": (0.2, 0.6, 0.9, 15.0),
}
CALL_PRICES = ((0.15, 0.6), (2.5, 10.0), (0.25, 1.25), (3.0, 15.0))
POOLS = {
    "mmlu_pro four": (0.3, 0.1, 0.03),
    "mmlu_pro small": (0.1,),
    "zeroeval": (0.3, 0.1, 0.03),
    "bfcl": (0.1,),
}
GRID = (0, 0.01, 0.03, 0.1, 0.3, 1.0)
# Other seeds than those on which anything was chosen.
FIRST_SEED, SEEDS = 500, 10
METHODS = (
    "best single",
    "oracle",
    "default router",
    "one look",
    "two looks",
    "agreement",
    "threshold cascade",
)
KEPT = 0.95


class Pool(NamedTuple):
    """A data set: vectors (n, d), errors and dollars (n, p), answers of each expert."""

    vectors: NDArray[np.float32]
    errors: NDArray[np.float64]
    dollars: NDArray[np.float64]
    answers: list[list[str]]


@cache
def pool_of(name: str) -> Pool:
    """Dollars are such that the most expensive expert costs 1 on average."""
    parts = {
        "mmlu_pro four": lambda: [_mmlu_pro(PRO_FOUR)],
        "mmlu_pro small": lambda: [_mmlu_pro(SMALL)],
        "zeroeval": lambda: [_zeroeval(each) for each in ("gsm", "crux", "math-l5")],
        "bfcl": lambda: [_bfcl()],
    }[name]()
    dollars = np.vstack([part.dollars for part in parts])
    if name in PRICES:
        dollars = dollars * np.array(PRICES[name])
    return Pool(
        np.vstack([part.vectors for part in parts]),
        np.vstack([part.errors for part in parts]),
        dollars / dollars.mean(axis=0).max(),
        [list(chain(*texts)) for texts in zip(*(part.answers for part in parts), strict=True)],
    )


def _texts(table: Any, experts: Sequence[str]) -> list[list[str]]:
    return [[text or "" for text in table[f"answer:{name}"].to_pylist()] for name in experts]


def _mmlu_pro(experts: Sequence[str]) -> Pool:
    """One price for all rows, as in the other benchmarks of this set."""
    folder = data_folder()
    table = pq.read_table(folder / "mmlu_pro.parquet")
    answers = pq.read_table(
        folder / "mmlu_pro_answers.parquet", columns=[f"answer:{name}" for name in experts]
    )
    errors = 1 - columns(table, "score", experts)
    vectors = np.load(folder / "mmlu_pro.minilm.npy").astype(np.float32)
    return Pool(vectors, errors, np.ones(errors.shape), _texts(answers, experts))


def _zeroeval(part: str) -> Pool:
    """Prices by the length of each output."""
    folder = data_folder()
    table = pq.read_table(folder / f"zeroeval_{part}.parquet")
    vectors = np.load(folder / f"zeroeval_{part}.minilm.npy").astype(np.float32)
    return Pool(
        vectors,
        1 - columns(table, "score", ZERO),
        columns(table, "outchars", ZERO),
        _texts(table, ZERO),
    )


def _bfcl() -> Pool:
    """Dollars of the tokens that were counted; vectors by TF-IDF, for no others are stored."""
    table = pq.read_table(data_folder() / "bfcl.parquet")
    read, written = np.array(CALL_PRICES).T
    dollars = (
        columns(table, "intokens", CALLS) * read + columns(table, "outtokens", CALLS) * written
    )
    questions = [
        f"{text} {tools}"
        for text, tools in zip(
            table["text"].to_pylist(), table["functions"].to_pylist(), strict=True
        )
    ]
    vectors = ReducedEncoder().fit_transform(questions)
    return Pool(vectors, 1 - columns(table, "score", CALLS), dollars, _texts(table, CALLS))


class Rows(NamedTuple):
    """Some rows of a pool, with answers as they are seen."""

    X: NDArray[np.float32]
    errors: NDArray[np.float64]
    dollars: NDArray[np.float64]
    answers: SeenAnswers

    def costs(self, weight: float) -> NDArray[np.float64]:
        return self.errors + weight * self.dollars


def parts_of(name: str, seed: int, rows: int | None) -> tuple[Rows, Rows, NDArray[np.intp]]:
    """Training and test rows, and which those are; answers are seen as the training rows teach."""
    pool = pool_of(name)
    train, test = split(len(pool.errors), seed)
    train = train[:rows]
    features = AnswerFeatures().fit([texts[row] for texts in pool.answers for row in train])
    found = []
    for kept in (train, test):
        seen = see_answers(features, [[texts[row] for row in kept] for texts in pool.answers])
        found.append(Rows(pool.vectors[kept], pool.errors[kept], pool.dollars[kept], seen))
    return found[0], found[1], test


def of_path(path: CascadePath, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Error and dollars of each row."""
    errors = rows.errors[np.arange(len(path.experts)), path.experts]
    return errors, (rows.dollars * path.is_called).sum(axis=1)


def agreement(train: Rows, test: Rows, weight: float) -> NDArray[np.float64]:
    """Two experts and what they agree on, else a third: the rule that cost least in training."""
    experts = train.errors.shape[1]

    def paid(rows: Rows, one: int, other: int, third: int) -> NDArray[np.float64]:
        agree = rows.answers.agree(one, other)
        costs = rows.costs(weight)
        asked = weight * rows.dollars[:, [one, other]].sum(axis=1)
        return np.where(agree, rows.errors[:, one], costs[:, third]) + asked

    rules = [
        (*pair, third)
        for pair in combinations(range(experts), 2)
        for third in range(experts)
        if third not in pair
    ]
    best = min(rules, key=lambda rule: paid(train, *rule).mean())
    return paid(test, *best)


def chances_to_be_right(train: Rows, test: Rows) -> dict[int, list[NDArray[np.float64]]]:
    """Of each expert's answer, by ridge regression: on held-out training rows and test rows."""
    found = {}
    for first in range(train.errors.shape[1]):
        is_right = train.errors[:, first] < 0.5
        seen = [np.hstack([rows.X, rows.answers.vectors[:, first]]) for rows in (train, test)]
        model = Ridge(alpha=3.0)
        held_out = cross_val_predict(model, seen[0], is_right.astype(float), cv=3)
        found[first] = [held_out, model.fit(seen[0], is_right).predict(seen[1])]
    return found


def threshold_cascade(
    train: Rows,
    test: Rows,
    chances: Mapping[int, Sequence[NDArray[np.float64]]],
    weight: float,
) -> NDArray[np.float64]:
    """In FrugalGPT's manner: a list of two experts, a scorer of the first's answer, a threshold.

    List and threshold are those of lowest cost on held-out training rows.
    """
    best: tuple[float, NDArray[np.float64]] = np.inf, np.empty(0)
    for first, second in permutations(range(train.errors.shape[1]), 2):
        for threshold in np.quantile(chances[first][0], np.linspace(0, 1, 41)):
            paid = [
                np.where(chance >= threshold, rows.errors[:, first], rows.costs(weight)[:, second])
                + weight * rows.dollars[:, first]
                for chance, rows in zip(chances[first], (train, test), strict=True)
            ]
            if paid[0].mean() < best[0]:
                best = float(paid[0].mean()), paid[1]
    return best[1]


def run_cell(name: str, seed: int, rows: int | None, folder: Path) -> str:
    """Costs of each test row by each method at each price, and what a target of quality saves."""
    target = folder / f"{name.replace(' ', '_')}-{seed}-{rows or 'all'}.npz"
    if target.exists():
        return f"{target.stem} is there"
    train, test, places = parts_of(name, seed, rows)
    started = time.perf_counter()
    plain = FrontierRouter(price_weights=GRID, random_state=seed)
    rows_of_fit = plain.training_rows(train.X, train.errors, prices=train.dollars)
    plain.fit_rows(rows_of_fit)
    seconds = [time.perf_counter() - started]
    cascades = {}
    for calls, method in ((2, "one look"), (3, "two looks")):
        started = time.perf_counter()
        cascade = CascadeRouter(max_calls=calls, price_weights=GRID, random_state=seed)
        # All that the default router has learned; looks are learned beside it.
        vars(cascade).update(
            {name: value for name, value in vars(plain).items() if name not in plain.get_params()}
        )
        cascade.routing_curve_ = plain.curve_
        cascade.fit_looks(replace(rows_of_fit, answers=train.answers))
        cascades[method] = cascade
        seconds.append(time.perf_counter() - started)
    chances = chances_to_be_right(train, test)
    found: dict[str, Any] = {"rows": places, "seconds": seconds}
    for weight in POOLS[name]:
        costs = test.costs(weight)
        chosen = plain.predict(test.X, weight)
        paid = {
            "best single": costs[:, train.costs(weight).mean(axis=0).argmin()],
            "oracle": costs.min(axis=1),
            "default router": costs[np.arange(len(costs)), chosen],
            "agreement": agreement(train, test, weight),
            "threshold cascade": threshold_cascade(train, test, chances, weight),
        }
        for method, cascade in cascades.items():
            path = cascade.follow(test.X, test.answers, weight)
            errors, dollars = of_path(path, test)
            paid[method] = errors + weight * dollars
            found[f"calls/{method}/{weight:g}"] = path.is_called.sum(axis=1).mean()
        found |= {f"costs/{method}/{weight:g}": values for method, values in paid.items()}
    for method, router in (("default router", plain), *cascades.items()):
        found[f"kept/{method}"] = kept(router, test)
    found["looks"] = [str(look) for look in cascades["two looks"].experts_[train.errors.shape[1] :]]
    save_cell(target, **found)
    return target.stem


def kept(router: FrontierRouter, test: Rows) -> list[float]:
    """Share of the best expert's bill saved, and of its score kept, at the target."""
    point = router.for_quality(KEPT)
    ids = [str(row) for row in range(len(test.X))]
    if isinstance(router, CascadeRouter):
        errors, dollars = of_path(
            router.follow(test.X, test.answers, point=point, request_ids=ids), test
        )
    else:
        chosen = router.predict(test.X, point=point, request_ids=ids)
        rows = np.arange(len(chosen))
        errors, dollars = test.errors[rows, chosen], test.dollars[rows, chosen]
    best = point.best
    return [
        float(1 - dollars.mean() / test.dollars[:, best].mean()),
        float((1 - errors.mean()) / (1 - test.errors[:, best].mean())),
    ]


class Figures(NamedTuple):
    """Of one pool: cost of each method by query, and shares of the distance to the oracle."""

    costs: dict[str, NDArray[np.float64]]
    calls: dict[str, float]

    def share(self, method: str) -> float:
        """Percent of the distance from the best single expert to the oracle."""
        means = {name: np.nanmean(values) for name, values in self.costs.items()}
        single = means["best single"]
        return float(100 * (single - means[method]) / (single - means["oracle"]))

    def against(self, method: str, other: str = "default router") -> Difference:
        return difference(self.costs[method], self.costs[other])


def figures(cells: Mapping[int, Any], weight: float, rows: int) -> Figures:
    costs = {
        method: per_query(
            {
                seed: (cell["rows"], cell[f"costs/{method}/{weight:g}"])
                for seed, cell in cells.items()
            },
            rows,
        )
        for method in METHODS
    }
    calls = {
        method: float(np.mean([cell[f"calls/{method}/{weight:g}"] for cell in cells.values()]))
        for method in ("one look", "two looks")
    }
    return Figures(costs, calls)


def read_cells(name: str, rows: int | None, folder: Path) -> dict[int, Any]:
    stem = f"{name.replace(' ', '_')}-*-{rows or 'all'}.npz"
    return {int(path.stem.split("-")[-2]): np.load(path) for path in sorted(folder.glob(stem))}


def saved_rows(found: Mapping[str, Mapping[int, Any]]) -> Iterator[Row]:
    for name, cells in found.items():
        values = {
            method: np.array([cell[f"kept/{method}"] for cell in cells.values()])
            for method in ("default router", "two looks")
        }
        gain = values["two looks"][:, 0] - values["default router"][:, 0]
        spread = 1.96 * gain.std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else np.nan
        means = {method: value.mean(axis=0) for method, value in values.items()}
        yield reported(
            f"{name}: saved at {KEPT:.0%} of the best expert's score",
            means["two looks"][0],
            f"default router {means['default router'][0]:.3f}, difference {gain.mean():+.3f} +-"
            f" {spread:.3f}; kept {means['two looks'][1]:.3f}, {means['default router'][1]:.3f}",
        )


def pool_rows(pools: Mapping[str, Figures]) -> Iterator[Row]:
    for name, found in pools.items():
        gap = found.against("two looks")
        others = ", ".join(
            f"{method} {found.share(method):.1f}" for method in METHODS[2:] if method != "two looks"
        )
        yield reported(
            f"{name}: % of the distance to the oracle, two looks",
            found.share("two looks"),
            f"{others}; minus default router {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}];"
            f" {found.calls['two looks']:.2f} calls",
        )


def bounded_rows(pools: Mapping[str, Figures]) -> Iterator[Row]:
    gaps = {name: found.against("two looks") for name, found in pools.items()}
    real = holm({name: gap.p_value for name, gap in gaps.items()})
    better = [name for name in real if gaps[name].mean < 0]
    worse = [name for name in real if gaps[name].mean > 0]
    yield at_least(
        f"of {len(pools)} pools, better than the default router (Holm)",
        len(better),
        4,
        ", ".join(sorted(better)),
        full_only=True,
    )
    yield at_most("worse than the default router (Holm)", len(worse), 0, ", ".join(worse))
    for name, least in (("mmlu_pro four .3", 9), ("mmlu_pro four .1", 18), ("zeroeval .03", 18)):
        if name in pools:
            yield at_least(
                f"{name}: % of the distance, the better of one and two looks",
                max(pools[name].share("one look"), pools[name].share("two looks")),
                least,
                full_only=True,
            )


CURVE_ROWS = (300, 1000, 3000)


def curve_rows(folder: Path, pool: str = "mmlu_pro four") -> Iterator[Row]:
    """Gain with more training rows, and whether it is ever below the router's."""
    total = len(pool_of(pool).errors)
    for rows in (*CURVE_ROWS, None):
        cells = read_cells(pool, rows, folder)
        if not cells:
            continue
        for weight in POOLS[pool]:
            found = figures(cells, weight, total)
            gap = found.against("two looks")
            yield at_most(
                f"{pool} {weight:g}, {rows or 'all'} rows: two looks minus default router, lower"
                " bound",
                gap.low,
                0.0,
                f"{found.share('two looks'):.1f}% and {found.share('default router'):.1f}%",
            )


def measure(quick: bool, store: Path | None, seeds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        drawn = range(FIRST_SEED, FIRST_SEED + seeds)
        if quick:
            run_cell("zeroeval", FIRST_SEED, 300, folder)
            cells = {"zeroeval": read_cells("zeroeval", 300, folder)}
        else:
            jobs: list[tuple[str, int, int | None, Path]] = [
                (name, seed, None, folder) for seed in drawn for name in POOLS
            ]
            jobs += [("mmlu_pro four", seed, rows, folder) for seed in drawn for rows in CURVE_ROWS]
            run_cells(run_cell, jobs)
            cells = {name: read_cells(name, None, folder) for name in POOLS}
        pools = {
            f"{name} {f'{weight:g}'.removeprefix('0')}": figures(
                found, weight, len(pool_of(name).errors)
            )
            for name, found in cells.items()
            for weight in POOLS[name]
        }
        rows = [*pool_rows(pools), *bounded_rows(pools), *saved_rows(cells), *curve_rows(folder)]
        yield from rows
        if not quick:
            seeds_of = "; ".join(
                f"{name} {min(found)} to {max(found)} ({len(found)})"
                for name, found in cells.items()
            )
            title = "A second look: cascades against routing by the question alone"
            write_report("cascade", title, rows, ("numpy", "scikit-learn"), seeds_of)


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {"--store": {"type": Path}, "--seeds": {"type": int, "default": SEEDS}},
    )
