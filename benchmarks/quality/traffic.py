"""What does learning from traffic gain? Streams in which each request shows one expert's score.

Run: MILDROUTE_DATA=... python benchmarks/quality/traffic.py [--json] [--quick] [--store FOLDER]
[--seeds 10] [--tune]

A stream is a data set in random order: 300 rows on which all experts are known, or none, and then
one score each, of the expert that was chosen; in some settings 30% of scores never come. Compared
are the first router left alone (the default on the 300 rows), ours (``OnlineRouter.explore``, told
every 200 requests), the same with 10% uniform exploration and with all scores (full information),
LinUCB and Thompson sampling with a ridge per expert, and vowpalwabbit's contextual bandits, which
learn after each request. Bandits see the same features, made from all vectors of the stream; their
settings were chosen on 3,000 requests of seeds 0 and 1 (``--tune`` prints them). Cells that are
stored already are not computed again, and ``--seeds 0`` computes none and reports what is stored.
It writes results/traffic.md.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cells import run_cells, save_cell, write_report
from pairs import Difference, difference, holm, per_query
from rows import Row, at_least, at_most, main, reported
from tasks import TASKS

from mildroute.routers import MildRouter, OnlineRouter

Array = NDArray[Any]
STREAMS = {
    "mmlu57 trio": "4",
    "mmlu57 four": "5",
    "routerbench": "2",
    "routerdc7": "1",
    "mmlu_pro four": "6",
}
# Full rows at the beginning, and the share of scores that come.
SETTINGS = {
    "300 rows": (300, 1.0),
    "300 rows, 30% missing": (300, 0.7),
    "no rows": (0, 1.0),
    "no rows, 30% missing": (0, 0.7),
}
FIRST_SEED, SEEDS = 500, 10
STEP, WARM, LONGEST = 200, 200, 12_000
BANDITS = ("LinUCB", "Thompson", "squarecb", "cover", "first", "epsilon")
# Of vowpalwabbit: what each explorer may be set to, and its learning rates.
EXPLORERS: dict[str, tuple[str, ...]] = {
    "squarecb": ("--squarecb --gamma_scale 10", "--squarecb --gamma_scale 100"),
    "cover": ("--cover 3", "--cover 8 --psi 0.1"),
    "first": ("--first 500", "--first 2000"),
    "epsilon": ("--epsilon 0.02", "--epsilon 0.1"),
}
RATES = (0.03, 0.3)
WIDTHS, PENALTIES = (0.25, 1.0), (10.0, 60.0)
# Found by --tune: of each stream and bandit, the best of the above.
TUNED: dict[str, dict[str, Any]] = {
    "mmlu57 trio": {
        "squarecb": {"explorer": "--squarecb --gamma_scale 10", "rate": 0.03},
        "cover": {"explorer": "--cover 8 --psi 0.1", "rate": 0.3},
        "first": {"explorer": "--first 500", "rate": 0.3},
        "epsilon": {"explorer": "--epsilon 0.02", "rate": 0.3},
        "LinUCB": {"width": 1.0, "penalty": 60.0},
        "Thompson": {"width": 0.25, "penalty": 60.0},
    },
    "mmlu57 four": {
        "squarecb": {"explorer": "--squarecb --gamma_scale 10", "rate": 0.3},
        "cover": {"explorer": "--cover 8 --psi 0.1", "rate": 0.03},
        "first": {"explorer": "--first 500", "rate": 0.03},
        "epsilon": {"explorer": "--epsilon 0.1", "rate": 0.03},
        "LinUCB": {"width": 0.25, "penalty": 60.0},
        "Thompson": {"width": 0.25, "penalty": 60.0},
    },
    "routerbench": {
        "squarecb": {"explorer": "--squarecb --gamma_scale 100", "rate": 0.3},
        "cover": {"explorer": "--cover 8 --psi 0.1", "rate": 0.03},
        "first": {"explorer": "--first 500", "rate": 0.03},
        "epsilon": {"explorer": "--epsilon 0.02", "rate": 0.03},
        "LinUCB": {"width": 1.0, "penalty": 60.0},
        "Thompson": {"width": 0.25, "penalty": 60.0},
    },
    "routerdc7": {
        "squarecb": {"explorer": "--squarecb --gamma_scale 100", "rate": 0.3},
        "cover": {"explorer": "--cover 8 --psi 0.1", "rate": 0.03},
        "first": {"explorer": "--first 500", "rate": 0.03},
        "epsilon": {"explorer": "--epsilon 0.1", "rate": 0.03},
        "LinUCB": {"width": 1.0, "penalty": 60.0},
        "Thompson": {"width": 0.25, "penalty": 10.0},
    },
    "mmlu_pro four": {
        "squarecb": {"explorer": "--squarecb --gamma_scale 100", "rate": 0.3},
        "cover": {"explorer": "--cover 8 --psi 0.1", "rate": 0.03},
        "first": {"explorer": "--first 500", "rate": 0.3},
        "epsilon": {"explorer": "--epsilon 0.1", "rate": 0.03},
        "LinUCB": {"width": 0.25, "penalty": 60.0},
        "Thompson": {"width": 0.25, "penalty": 60.0},
    },
}


def online(
    X: Array,
    costs: Array,
    first: int,
    scored: NDArray[np.bool_],
    choose: Callable[[OnlineRouter, Array], NDArray[np.intp]],
    *,
    is_full: bool = False,
) -> NDArray[np.intp]:
    """Choices of an online router, which is told every so many requests."""
    rows, experts = costs.shape
    # Of the first requests, if nothing else is known.
    choice: NDArray[np.intp] = np.arange(rows) % experts
    seen = np.full(costs.shape, np.nan)
    start = first or WARM
    if first or is_full:
        seen[:start] = costs[:start]
    else:
        tell(seen, costs, choice, scored, slice(0, start))
    router, learned_on = OnlineRouter(random_state=0), 0
    for low in range(start, rows, STEP):
        now = slice(low, min(low + STEP, rows))
        if low >= 2 * learned_on:  # features of more rows
            router, learned_on = OnlineRouter(random_state=0).fit(X[:low], seen[:low]), low
        choice[now] = choose(router, X[now])
        if is_full:
            seen[now] = costs[now]
        else:
            tell(seen, costs, choice, scored, now)
        router.partial_fit(X[now], seen[now])
    return choice


def tell(
    seen: Array, costs: Array, choice: NDArray[np.intp], scored: NDArray[np.bool_], now: slice
) -> None:
    rows = np.arange(now.start, now.stop)[scored[now]]
    seen[rows, choice[rows]] = costs[rows, choice[rows]]


def uniformly(random: np.random.Generator, router: OnlineRouter, X: Array) -> NDArray[np.intp]:
    choice = router.predict(X)
    drawn = random.integers(0, len(router.experts_), len(X))
    return np.where(random.random(len(X)) < 0.1, drawn, choice)


def linear_bandit(
    features: Array,
    costs: Array,
    first: int,
    scored: NDArray[np.bool_],
    *,
    width: float,
    penalty: float,
    seed: int | None,
) -> NDArray[np.intp]:
    """LinUCB, or Thompson sampling if there is a seed: a ridge regression for each expert."""
    (rows, experts), columns = costs.shape, features.shape[1]
    random = np.random.default_rng(seed)
    gram = np.tile(np.eye(columns) * penalty, (experts, 1, 1))
    moments = np.zeros((experts, columns))
    choice: NDArray[np.intp] = np.arange(rows) % experts
    noise = 0.2  # variance of a score about what is expected, of all streams

    def learn(now: slice, asked: NDArray[np.bool_]) -> None:
        for expert in range(experts):
            part = features[now][asked[:, expert]]
            gram[expert] += part.T @ part
            moments[expert] += part.T @ costs[now][asked[:, expert], expert]

    start = first or WARM
    everything = np.ones((start, experts), bool)
    one = choice[:start, None] == np.arange(experts)
    learn(slice(0, start), everything if first else one & scored[:start, None])
    for low in range(start, rows, STEP):
        now = slice(low, min(low + STEP, rows))
        inverse = np.linalg.inv(gram)
        weights = np.einsum("kde,ke->kd", inverse, moments)
        spread = np.sqrt(
            noise * np.einsum("nd,kde,ne->nk", features[now], inverse, features[now], optimize=True)
        )
        draw = -1.0 if seed is None else random.normal(size=spread.shape)
        choice[now] = (features[now] @ weights.T + width * draw * spread).argmin(axis=1)
        learn(now, (choice[now][:, None] == np.arange(experts)) & scored[now][:, None])
    return choice


def vowpal_wabbit(
    features: Array,
    costs: Array,
    first: int,
    scored: NDArray[np.bool_],
    *,
    explorer: str,
    rate: float,
) -> NDArray[np.intp]:
    """A contextual bandit of vowpalwabbit, which learns after each request."""
    import vowpalwabbit  # type: ignore[import-untyped]

    rows, experts = costs.shape
    model = vowpalwabbit.Workspace(
        f"--cb_explore_adf {explorer} --learning_rate {rate} --cb_type mtr -q UA --quiet"
        " --random_seed 1"
    )
    random = np.random.default_rng(0)
    actions = [f"|A a{expert}" for expert in range(experts)]
    shared = [
        "shared |U " + " ".join(f"{place}:{value:.4g}" for place, value in enumerate(row))
        for row in features
    ]

    def learn(row: int, expert: int, chance: float) -> None:
        lines = list(actions)
        lines[expert] = f"0:{costs[row, expert]:.4f}:{chance:.6f} {lines[expert]}"
        model.learn([shared[row], *lines])

    choice = np.zeros(rows, np.intp)
    for row in range(first):
        for expert in range(experts):
            learn(row, expert, 1 / experts)
    for row in range(first, rows):
        chances = np.asarray(model.predict([shared[row], *actions]))
        chances = np.maximum(chances, 0) / np.maximum(chances, 0).sum()
        choice[row] = min(int((chances.cumsum() < random.random()).sum()), experts - 1)
        if scored[row]:
            learn(row, choice[row], float(chances[choice[row]]))
    model.finish()
    return choice


def bandit(name: str, setting: Mapping[str, Any], seed: int) -> Callable[..., NDArray[np.intp]]:
    if name in EXPLORERS:
        return partial(vowpal_wabbit, **setting)
    return partial(linear_bandit, seed=None if name == "LinUCB" else seed, **setting)


def draw(stream: str, seed: int) -> tuple[NDArray[np.intp], Array, Array]:
    """Rows of a stream in random order, their vectors and costs."""
    task = TASKS[STREAMS[stream]]()
    order = np.random.default_rng(seed).permutation(len(task.costs))[:LONGEST]
    return order, task.vectors[order], task.costs[order]


def features_of(X: Array) -> Array:
    map_ = OnlineRouter(random_state=0)
    map_._learn_features(X)
    return map_._features(X)


def run_cell(stream: str, seed: int, setting: str, rows: int | None, folder: Path) -> str:
    """Choices of all methods on one stream."""
    start = time.perf_counter()
    name = f"{stream}, {setting}, seed {seed}"
    target = folder / f"{name.replace(' ', '_').replace('%', '')}-{rows}.npz"
    if target.exists():
        return f"{name}: stored"
    order, X, costs = draw(stream, seed)
    order, X, costs = order[:rows], X[:rows], costs[:rows]
    first, share = SETTINGS[setting]
    random = np.random.default_rng(seed + 10_000)
    scored = random.random(len(costs)) < share
    given = (X, costs, first, scored)
    found = {
        "ours": online(*given, OnlineRouter.explore),
        "full information": online(*given, OnlineRouter.predict, is_full=True),
    }
    if first:
        router = MildRouter(random_state=0).fit(X[:first], costs[:first])
        found["first router"] = router.predict(X)
    if setting == "300 rows":
        found["uniform"] = online(*given, partial(uniformly, random))
        features = features_of(X)
        for each in BANDITS:
            found[each] = bandit(each, TUNED[stream][each], seed)(features, costs, first, scored)
    elif "LinUCB" in TUNED.get(stream, {}):
        features = features_of(X)
        found["LinUCB"] = bandit("LinUCB", TUNED[stream]["LinUCB"], seed)(features, *given[1:])
    save_cell(target, order=order, costs=costs, **found)
    return f"{name}: {time.perf_counter() - start:.0f} s"


def read_cells(
    stream: str, setting: str, seeds: range, rows: int | None, folder: Path
) -> dict[str, dict[int, tuple[NDArray[np.intp], Array]]]:
    """Of each method and seed, the rows of the stream and what was paid for them."""
    found: dict[str, dict[int, tuple[NDArray[np.intp], Array]]] = {}
    for seed in seeds:
        name = f"{stream}, {setting}, seed {seed}".replace(" ", "_").replace("%", "")
        target = folder / f"{name}-{rows}.npz"
        if not target.exists():
            continue
        cell = np.load(target)
        start, costs = SETTINGS[setting][0], cell["costs"]
        at = np.arange(start, len(costs))
        found.setdefault("oracle", {})[seed] = (cell["order"][at], costs[at].min(axis=1))
        for method in cell.files:
            if method not in ("order", "costs"):
                paid = costs[at, cell[method][at]]
                found.setdefault(method, {})[seed] = (cell["order"][at], paid)
    return found


def mean_of(paid: Mapping[int, tuple[Any, Array]], last: float = 1.0) -> float:
    """Mean cost over streams, or over the last part of each."""
    return float(np.mean([cost[-int(len(cost) * last) :].mean() for _, cost in paid.values()]))


def compared(found: Mapping[str, Any], ours: str, other: str, size: int) -> Difference:
    return difference(per_query(found[ours], size), per_query(found[other], size))


def stream_rows(stream: str, setting: str, found: Mapping[str, Any]) -> Iterator[Row]:
    label = f"{stream}, {setting}"
    for method, paid in found.items():
        yield reported(
            f"{label}: cost of {method}",
            mean_of(paid),
            f"seeds: {len(paid)}; last quarter {mean_of(paid, 0.25):.4f}",
        )
    if "first router" not in found:
        return
    for part, last, least in (("stream", 1.0, 0.6), ("last quarter", 0.25, 0.75)):
        first, full, ours = (
            mean_of(found[name], last) for name in ("first router", "full information", "ours")
        )
        gain = first - full
        share = (first - ours) / gain if gain > 0 else float("nan")
        name = f"{label}: share of the gain of full information, {part}"
        note = f"of a gain of {gain:.4f}"
        if stream.startswith("mmlu57") and setting == "300 rows":
            yield at_least(name, share, least, note, full_only=True)
        else:
            yield reported(name, share, note)


def bounded_rows(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[Row]:
    """Ours against the best bandit of each stream, and against the first router left alone.

    Where LinUCB is the only bandit, the difference to it is reported.
    """
    best: dict[str, Difference] = {}
    alone: dict[str, Difference] = {}
    beside: dict[str, Difference] = {}
    names = {}
    for (stream, setting), methods in found.items():
        size = len(TASKS[STREAMS[stream]]().costs)
        if "first router" in methods:
            alone[f"{stream}, {setting}"] = compared(methods, "ours", "first router", size)
        if setting == "300 rows":
            rivals = [name for name in BANDITS if name in methods]
            names[stream] = min(rivals, key=lambda name: mean_of(methods[name]))
            best[stream] = compared(methods, "ours", names[stream], size)
        elif "LinUCB" in methods:
            beside[f"{stream}, {setting}"] = compared(methods, "ours", "LinUCB", size)
    for stream, gap in best.items():
        yield reported(
            f"{stream}: ours minus the best bandit",
            gap.mean,
            f"{names[stream]}; [{gap.low:.4f}, {gap.high:.4f}]",
        )
    for rival, gaps in (("the first router", alone), ("LinUCB", beside)):
        for label, gap in gaps.items():
            yield reported(
                f"{label}: ours minus {rival}", gap.mean, f"[{gap.low:.4f}, {gap.high:.4f}]"
            )
    excess = [
        mean_of(paid) - mean_of(methods["oracle"])
        for methods in found.values()
        for name, paid in methods.items()
        if name != "oracle"
    ]
    yield at_least("lowest cost of a method minus the oracle's", min(excess), 0.0)
    sure = holm({name: gap.p_value for name, gap in best.items()})
    better = sum(best[name].mean < 0 for name in sure)
    yield at_least(
        "streams with ours significantly better than the best bandit", better, 3, full_only=True
    )
    worse = sum(best[name].mean > 0 for name in sure)
    yield at_most(
        "streams with ours significantly worse than the best bandit", worse, 0, full_only=True
    )
    sure = holm({name: gap.p_value for name, gap in alone.items()})
    worse = sum(alone[name].mean > 0 for name in sure)
    yield at_most(
        "settings with ours significantly worse than the first router", worse, 0, full_only=True
    )


def tune() -> None:
    """Print the best settings of each bandit on 3,000 requests of seeds 0 and 1."""
    grids: dict[str, list[dict[str, Any]]] = {
        name: [{"explorer": each, "rate": rate} for each, rate in product(words, RATES)]
        for name, words in EXPLORERS.items()
    }
    linear = [{"width": width, "penalty": each} for width, each in product(WIDTHS, PENALTIES)]
    grids |= {"LinUCB": linear, "Thompson": linear}
    for stream in STREAMS:
        found: dict[str, dict[str, Any]] = {}
        for name, grid in grids.items():
            paid = np.zeros(len(grid))
            for seed in range(1 if name in EXPLORERS else 2):
                _, X, costs = draw(stream, seed)
                X, costs = X[:3000], costs[:3000]
                features, scored = features_of(X), np.ones(len(X), bool)
                for place, setting in enumerate(grid):
                    choice = bandit(name, setting, seed)(features, costs, 300, scored)
                    paid[place] += costs[np.arange(300, len(X)), choice[300:]].mean()
            found[name] = grid[int(paid.argmin())]
        print(f"    {stream!r}: {found!r},", flush=True)


def measure(quick: bool, store: Path | None, seeds: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as scratch:
        folder = store or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        drawn = range(FIRST_SEED, FIRST_SEED + (1 if quick else seeds))
        rows = 800 if quick else None
        streams = ["routerbench"] if quick else list(STREAMS)
        pairs = [(stream, setting) for setting in SETTINGS for stream in streams]
        run_cells(
            run_cell,
            [(stream, seed, how, rows, folder) for stream, how in pairs for seed in drawn],
        )
        kept = drawn if quick else range(FIRST_SEED, FIRST_SEED + SEEDS)
        found = {pair: read_cells(*pair, kept, rows, folder) for pair in pairs}
        out = [
            row
            for (stream, setting), each in found.items()
            for row in stream_rows(stream, setting, each)
        ]
        out += bounded_rows(found)
        yield from out
        if not quick:
            write_report(
                "traffic",
                "Learning from traffic: one score a request",
                out,
                ("numpy", "scikit-learn", "vowpalwabbit"),
                f"from {FIRST_SEED} on, as many as each row says",
            )


if __name__ == "__main__":
    if "--tune" in sys.argv:
        tune()
    else:
        main(
            __doc__ or "",
            measure,
            {"--store": {"type": Path}, "--seeds": {"type": int, "default": SEEDS}},
        )
