"""From choices on held-out rows to curves of money against quality, with intervals.

They are kept as a small Parquet that the picture is drawn from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cells import origin_of
from numpy.typing import NDArray

from mildroute.routers.frontier.hull import convex_hull_indices

COMMAND = "python benchmarks/quality/curves.py --seeds"
PACKAGES = ("mildroute", "numpy", "scikit-learn", "scipy")
CURVES = ("router", "knn", "knn minilm")
RESAMPLES, GRID, TAIL = 2000, 80, 0.025
# Dollars per 1,000 queries at which the curves are compared.
BILLS = (0.5, 1.0, 2.0, 3.0, 4.0)

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Held:
    """Choices on held-out rows, each (repetitions, weights, n); scores and dollars (n, p); names.

    Price weights (W,); rows of each fold.
    """

    choices: dict[str, NDArray[np.int8]]
    scores: Matrix
    dollars: Matrix
    experts: tuple[str, ...]
    weights: Matrix
    folds: list[list[NDArray[np.intp]]]


@dataclass
class Means:
    """Mean score and bill of every method over all rows (first) and over each resample of them.

    Both have shape (1 + resamples, W). ``parts`` has the same for the rows of each fold, whose
    router is one of its own, with the share of these rows.
    """

    bill: dict[str, Matrix] = field(default_factory=dict)
    score: dict[str, Matrix] = field(default_factory=dict)
    parts: dict[str, list[tuple[Matrix, Matrix, Matrix]]] = field(default_factory=dict)


def means_of(held: Held) -> Means:
    """Every method on the same resampled queries, so that differences are paired."""
    rows = len(held.scores)
    rng, found = np.random.default_rng(0), Means()
    counts = (
        np.vstack([np.ones(rows), rng.multinomial(rows, np.full(rows, 1 / rows), size=RESAMPLES)])
        / rows
    )
    for name, choice in held.choices.items():
        if (choice < 0).any():  # a target that was refused somewhere has no figure
            continue
        found.score[name] = counts @ _taken(held.scores, choice)
        found.bill[name] = 1000 * (counts @ _taken(held.dollars, choice))
        found.parts[name] = [
            _part(held, counts, choice[place], rows)
            for place, folds in enumerate(held.folds)
            for rows in folds
        ]
    found.score["single"], found.bill["single"] = (
        counts @ held.scores,
        1000 * (counts @ held.dollars),
    )
    best = np.lexsort((held.dollars, -held.scores), axis=1)[:, :1].T[None]
    found.score["oracle"], found.bill["oracle"] = (
        counts @ _taken(held.scores, best),
        1000 * (counts @ _taken(held.dollars, best)),
    )
    return found


def _part(
    held: Held, counts: Matrix, choice: NDArray[Any], rows: NDArray[np.intp]
) -> tuple[Matrix, Matrix, Matrix]:
    """Share of the rows of one fold in each resample, and bill and score on them."""
    weights = counts[:, rows] / counts[:, rows].sum(axis=1, keepdims=True)
    bill, score = (
        weights @ _taken(values[rows], choice[None][:, :, rows])
        for values in (held.dollars, held.scores)
    )
    return counts[:, rows].sum(axis=1) / len(held.folds), 1000 * bill, score


def _taken(values: Matrix, choice: NDArray[Any]) -> Matrix:
    """Mean over repetitions of what the chosen experts have, shape (n, W)."""
    rows = np.arange(len(values))
    return np.asarray(
        np.mean([values[rows, weights] for weights in choice.astype(np.intp)], axis=0)
    ).T


def curve_at(means: Means, name: str, bills: Matrix) -> Matrix:
    """Score of a method at bills, shape (1 + resamples, len(bills)).

    Between two points both are mixed, as a coin would.

    Each fold has a router of its own, so folds are averaged at equal bills, not at equal price
    weights.
    """
    if name == "single":
        kept = convex_hull_indices(means.bill[name][0], means.score[name][0])
        return _between(means.bill[name][:, kept], means.score[name][:, kept], bills)
    return np.asarray(
        sum(share[:, None] * _between(x, y, bills) for share, x, y in means.parts[name])
    )


def above(means: Means, target: str, name: str) -> Matrix:
    """Return the score of an operating point minus that of a method's curve at the same bill.

    It is taken fold by fold, one per resample.
    """
    pairs = zip(means.parts[target], means.parts[name], strict=True)
    return np.asarray(
        sum(
            share * (score[:, 0] - _between(x, y, bill)[:, 0])
            for (share, bill, score), (_, x, y) in pairs
        )
    )


def _between(x: Matrix, y: Matrix, bills: Matrix) -> Matrix:
    """Straight lines between points, in each resample."""
    order = np.argsort(x, axis=1)
    x, y = np.take_along_axis(x, order, axis=1), np.take_along_axis(y, order, axis=1)
    wanted = np.broadcast_to(bills, (len(x), np.shape(bills)[-1]))
    return np.array(
        [np.interp(bill, one, other) for bill, one, other in zip(wanted, x, y, strict=True)]
    )


def bill_for(means: Means, name: str, target: Matrix) -> Matrix:
    """Lowest bill at which a curve reaches a score, one per resample; NaN where it does not."""
    fine = np.geomspace(means.bill["single"][0].min(), means.bill["single"][0].max(), 600)
    reached = curve_at(means, name, fine) >= target[:, None]
    return np.where(reached.any(axis=1), fine[reached.argmax(axis=1)], np.nan)


def interval(values: Matrix) -> dict[str, float]:
    """The figure of all rows and the middle 95% of the resamples'."""
    low, high = np.nanquantile(values[1:], [TAIL, 1 - TAIL])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def comparisons(means: Means) -> dict[str, dict[str, float]]:
    """Every figure that a caption or a table shows, by name."""
    best = int(means.score["single"][0].argmax())
    price, quality = means.bill["single"][:, best], means.score["single"][:, best]
    found = {"best single score": interval(quality), "best single bill": interval(price)}
    for name in (name for name in means.score if name.startswith("target")):
        bill, score = means.bill[name][:, 0], means.score[name][:, 0]
        found[f"{name}: score"], found[f"{name}: bill"] = interval(score), interval(bill)
        found[f"{name}: share of best"], found[f"{name}: saved"] = (
            interval(score / quality),
            interval(1 - bill / price),
        )
        found[f"{name}: minus best"] = interval(score - quality)
        found[f"{name}: minus single"] = interval(
            score - curve_at(means, "single", bill[:, None])[:, 0]
        )
        for other in CURVES:
            found[f"{name}: minus {other}"] = interval(above(means, name, other))
    ours = curve_at(means, "router", np.array(BILLS))
    for name in (*CURVES, "single"):
        theirs = curve_at(means, name, np.array(BILLS))
        for place, bill in enumerate(BILLS):
            found[f"{name} at {bill:g}"] = interval(theirs[:, place])
            found[f"router minus {name} at {bill:g}"] = interval(ours[:, place] - theirs[:, place])
        for share in (0.9, 0.95, 0.97):
            found[f"bill of {name} for {share:g}"] = interval(
                bill_for(means, name, share * quality)
            )
    return found


def figures(held: Held) -> Iterator[tuple[str, float, str]]:
    """Name, value and interval of every figure."""
    for name, found in comparisons(means_of(held)).items():
        yield name, found["value"], f"95% [{found['low']:.4g}, {found['high']:.4g}]"


def points(held: Held, means: Means) -> Iterator[dict[str, Any]]:
    """Rows of the Parquet: points of each method, and bands and mixes along a grid of bills."""
    labels: dict[str, Sequence[Any]] = dict.fromkeys(CURVES, held.weights) | {
        "single": held.experts,
        "oracle": ("oracle",),
    }
    labels["router"] = [
        f"point {place + 1} of the hull" for place in range(held.choices["router"].shape[1])
    ]
    for series in means.score:
        for place, label in enumerate(labels.get(series, (series,))):
            bill, score = (
                interval(means.bill[series][:, place]),
                interval(means.score[series][:, place]),
            )
            named = label if isinstance(label, str) else f"price weight {label:.3g}"
            yield {
                "series": series,
                "name": named,
                **_flat("dollars", bill),
                **_flat("score", score),
            }
    lowest, highest = means.bill["single"][0].min(), means.bill["single"][0].max()
    for series in (*CURVES, "single"):
        grid = np.geomspace(
            max(lowest, means.bill[series][0].min()),
            min(highest, means.bill[series][0].max()),
            GRID,
        )
        for bill, column in zip(grid, curve_at(means, series, grid).T, strict=True):
            yield {
                "series": f"{series} band",
                "name": "",
                "dollars": float(bill),
                **_flat("score", interval(column)),
            }


def _flat(kind: str, found: dict[str, float]) -> dict[str, float]:
    return {kind: found["value"], f"{kind}_low": found["low"], f"{kind}_high": found["high"]}


SCHEMA = pa.schema(
    [("series", pa.string()), ("name", pa.string())]
    + [
        (f"{kind}{end}", pa.float64())
        for kind in ("dollars", "score")
        for end in ("", "_low", "_high")
    ]
)


def write_curves(held: Held, path: Path, *, seeds: range, folds: int) -> None:
    """The Parquet, with what it took and every comparison in its metadata."""
    means = means_of(held)
    origin = origin_of(
        PACKAGES,
        command=f"{COMMAND} {len(seeds)}",
        queries=(
            f"{len(held.scores):,} queries of routerbench_subset, {len(held.experts)} models, true"
            " dollars"
        ),
        held_out=(
            f"{folds} folds, seeds {seeds[0]} to {seeds[-1]}, every query held out once for each"
            " seed"
            if len(seeds) > 1
            else f"{folds} folds, seed {seeds[0]}, every query held out once"
        ),
    )
    origin["figures"] = json.dumps(comparisons(means))
    pq.write_table(
        pa.Table.from_pylist(list(points(held, means)), schema=SCHEMA).replace_schema_metadata(
            origin
        ),
        path,
    )
