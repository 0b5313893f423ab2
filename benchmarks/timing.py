"""Timings as ratios of two things done in turn, so that a busy machine slows both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median


def ratio(ours: Callable[[], object], theirs: Callable[[], object], *, rounds: int) -> tuple[float, float, float]:
    """Median over rounds of ours / theirs, each round timing both one after the other; and both medians in seconds.

    Each side is repeated within a round until it takes at least five milliseconds.
    """
    repeats_ours, repeats_theirs = _repeats(ours), _repeats(theirs)
    pairs = [(_seconds(ours, repeats_ours), _seconds(theirs, repeats_theirs)) for _ in range(rounds)]
    return median(a / b for a, b in pairs), median(a for a, _ in pairs), median(b for _, b in pairs)


def _repeats(call: Callable[[], object]) -> int:
    call()
    return max(1, round(0.005 / _seconds(call, 3)))


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats
