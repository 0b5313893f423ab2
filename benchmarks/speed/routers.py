"""What a fit and a prediction cost, as ratios to the plain operations.

Also the memory of a large fit.

Run: [MILDROUTE_DATA=...] python benchmarks/speed/routers.py [--json] [--quick]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from rows import Row, at_least, at_most, main, reported
from timing import ratio

from mildroute.routers.mild import MildRouter

LARGE_FIT = "--large-fit"


def problem(rows: int, width: int, experts: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Unit vectors around 30 centers, and costs that depend on the center.

    Noisy, as real answers are.
    """
    rng = np.random.default_rng(0)
    center = rng.integers(0, 30, size=rows)
    X = rng.normal(size=(30, width))[center] + 1.5 * rng.normal(size=(rows, width))
    skill = rng.uniform(0.3, 0.8, size=(30, experts))
    costs = (rng.random((rows, experts)) > skill[center]).astype(np.float64)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), costs


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def fit_row(quick: bool) -> Row:
    X, costs = problem(400 if quick else 12_000, 384, 7)
    winner = costs.argmin(axis=1)
    plain = min(
        seconds(lambda: LogisticRegression().fit(X, winner)) for _ in range(1 if quick else 3)
    )
    ours = min(
        seconds(lambda: MildRouter(random_state=0).fit(X, costs)) for _ in range(1 if quick else 3)
    )
    note = f"{ours:.1f} s and {plain:.2f} s, {len(X):,} x 384, 7 experts, search included"
    name = "default fit / LogisticRegression" + (", small" if quick else "")
    return at_most(name, ours / plain, 12, note, full_only=True)


def predict_rows(quick: bool) -> Iterator[Row]:
    X, costs = problem(20_000 if quick else 100_000, 384, 7)
    router = MildRouter(reward="gap", margins="uniform", features="raw", alpha=0.001).fit(
        X[:2000], costs[:2000]
    )
    assert router.weights_ is not None
    weights, intercept = router.weights_.astype(np.float32), router.intercept_.astype(np.float32)
    value, ours, plain = ratio(
        lambda: router.predict(X),
        lambda: (X @ weights + intercept).argmax(axis=1),
        rounds=5 if quick else 15,
    )
    yield at_least(
        "speed of predict / bare product and argmax",
        1 / value,
        0.5,
        f"{1e3 * ours:.0f} and {1e3 * plain:.0f} ms, {len(X):,} rows",
        full_only=True,
    )
    topics = MildRouter(reward="gap", margins="uniform", features="topics", alpha=0.001).fit(
        X[:2000], costs[:2000]
    )
    value, ours, _ = ratio(
        lambda: topics.predict(X),
        lambda: (X @ weights + intercept).argmax(axis=1),
        rounds=1 if quick else 3,
    )
    yield reported(
        "speed of predict with topics / bare product and argmax", 1 / value, f"{1e3 * ours:.0f} ms"
    )


def large_fit() -> None:
    rows, width, experts = map(int, sys.argv[2:])
    X, costs = problem(rows, width, experts)
    MildRouter(random_state=0).fit(X, costs)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def memory_row(quick: bool) -> Row:
    rows, width, experts = (100, 8, 3) if quick else (50_000, 384, 100)
    start = time.perf_counter()
    words = [sys.executable, __file__, LARGE_FIT, *map(str, (rows, width, experts))]
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    gibibytes = int(run.stdout.split()[-1]) / 2**30
    spent = time.perf_counter() - start
    note = f"default fit of {rows:,} x {width}, {experts} experts, {spent:.0f} s"
    return at_most("GiB resident at most", gibibytes, 4, note)


def measure(quick: bool) -> Iterator[Row]:
    yield from predict_rows(quick)
    yield fit_row(quick)
    yield memory_row(quick)


if __name__ == "__main__":
    if LARGE_FIT in sys.argv:
        large_fit()
    else:
        main(__doc__ or "", measure)
