"""Timings as ratios of two things done in turn, so that a busy machine slows both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def ratio(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    *,
    rounds: int,
    repeats: int | None = None,
) -> tuple[float, float, float]:
    """Median over rounds of ours / theirs, each round timing both one after the other.

    And both medians in seconds.

    Each side is repeated within a round, by default until it takes at least five milliseconds.
    """
    repeats_ours, repeats_theirs = repeats or _repeats(ours), repeats or _repeats(theirs)
    pairs = [
        (_seconds(ours, repeats_ours), _seconds(theirs, repeats_theirs)) for _ in range(rounds)
    ]
    return median(a / b for a, b in pairs), median(a for a, _ in pairs), median(b for _, b in pairs)


def _repeats(call: Callable[[], object]) -> int:
    call()
    once = _seconds(call, 1)
    return 1 if once >= 0.005 else round(0.005 / _seconds(call, 3)) or 1


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
