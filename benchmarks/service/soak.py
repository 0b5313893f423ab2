"""Soak: long load at 70% of the peak, and nothing may pile up.

Run: python benchmarks/service/soak.py [--json] [--quick] [--minutes 20]

The peak is measured first, with the same mix of requests: streams and not, with tools, prompts that
the gateway has met and new ones, three keys. Then requests arrive at 70% of it, whether answers
come or not. What grows by design is small here, so that it is full before the measurement begins:
1,000 remembered vectors and 2,000 conversations (10,000 and 100,000 by default); the decision log
grows on disk. Memory is the resident set of the gateway's process; its slope is a straight line
through the samples after the first fifth of the time, with the standard error that independent
samples would have.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import math
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from books import charged, dollars_of
from processes import House, house
from rows import Row, at_most, main, reported
from traffic import Job, Told, Totals, Traffic

MINUTES, SHARE, AT_ONCE = 20.0, 0.7, 48
SETTINGS = "encoder: {cache_size: 1000, timeout: 2.0}\nrouting: {max_sessions: 2000}\n"


@dataclass
class Sample:
    """The gateway at one moment."""

    at: float
    memory: float
    descriptors: float
    threads: float
    in_flight: float


@dataclass
class Outcome:
    """What came of it."""

    peak: float
    totals: Totals
    failed: list[Told]
    samples: list[Sample] = field(default_factory=list)
    descriptors_left: float = 0.0
    requests_left: float = 0.0
    lines: int = 0
    # Of each key: as clients saw it, as the log has it, as metrics have it.
    bills: dict[str, tuple[float, float, float]] = field(default_factory=dict)


def soak(folder: Path, seconds: float, every: float, peak_seconds: float) -> Outcome:
    """Find the peak, then load for so many seconds and take samples."""
    with house(folder, SETTINGS) as ours:
        before = look(ours)
        lines_before = lines_of(ours)
        book = str(folder / "clients.jsonl")
        first = (
            Traffic(
                Job(
                    ours.port,
                    ours.keys,
                    0,
                    peak_seconds,
                    book,
                    most_at_once=AT_ONCE,
                    keeps_good=False,
                )
            )
            .start()
            .finish()[1]
        )
        peak = first.good / peak_seconds
        traffic = Traffic(
            Job(
                ours.port,
                ours.keys,
                peak * SHARE,
                seconds,
                book,
                first_number=10**8,
                keeps_good=False,
                seed=1,
            )
        ).start()
        samples = list(sampled(ours, seconds, every))
        failed, totals = traffic.finish()
        found = Outcome(peak, totals, failed, samples)
        found.descriptors_left, found.requests_left = left_over(ours, before, lines_before)
        in_log, in_metrics = charged(folder / "log"), charged_in_metrics(ours.gateway.metrics())
        for key in ours.keys:
            seen = math.fsum(cost_of(each, key) for each in (first, totals))
            found.bills[key] = seen, in_log.get(key, 0.0), in_metrics.get(key, 0.0)
        found.lines = count_lines(folder / "log") - first.requests - totals.requests
        return found


def look(ours: House) -> Sample:
    """Ask the system and the gateway itself."""
    page, system = ours.gateway.metrics(), ours.gateway.resources()
    return Sample(
        time.monotonic(),
        in_flight=figure(page, "mildroute_in_flight"),
        **system,
    )


def left_over(ours: House, before: Sample, lines: int) -> tuple[float, float]:
    """File descriptors and requests in flight beyond those before, once all clients have gone."""
    until = time.monotonic() + 10
    while True:
        now = look(ours)
        descriptors = now.descriptors - before.descriptors - (lines_of(ours) - lines)
        requests = now.in_flight - before.in_flight
        if (descriptors <= 0 and requests <= 0) or time.monotonic() > until:
            return descriptors, requests
        time.sleep(0.1)


def figure(page: str, name: str) -> float:
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(found[1]) if found else math.nan


def charged_in_metrics(page: str) -> dict[str, float]:
    found = re.findall(
        r'^mildroute_key_spend_dollars_total\{key="([^"]+)"\} (\S+)$', page, re.MULTILINE
    )
    return {key: float(value) for key, value in found}


def lines_of(ours: House) -> int:
    """Connections from the gateway to its experts."""
    return sum(int(expert.tell("ok")["lines"]) for expert in ours.experts.values())


def sampled(ours: House, seconds: float, every: float) -> Iterator[Sample]:
    begun = time.monotonic()
    for place in range(int(seconds / every)):
        time.sleep(max(0.0, begun + (place + 1) * every - time.monotonic()))
        yield look(ours)


def cost_of(totals: Totals, key: str) -> float:
    split = [(name.split(" "), tokens) for name, tokens in totals.tokens.items()]
    return math.fsum(
        dollars_of(expert, (tokens[0], tokens[1]))
        for (owner, expert), tokens in split
        if owner == key
    )


def count_lines(log: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in (log / "decisions").glob("*.jsonl"))


def slope(samples: list[Sample]) -> tuple[float, float]:
    """MiB a minute, and its standard error."""
    if len(samples) < 3:
        return math.nan, math.nan
    minutes = np.array([sample.at for sample in samples]) / 60
    memory = np.array([sample.memory for sample in samples])
    centered = minutes - minutes.mean()
    spread = float((centered**2).sum())
    found = float((centered * memory).sum() / spread)
    rest = memory - memory.mean() - found * centered
    return found, math.sqrt(float((rest**2).sum()) / (len(samples) - 2) / spread)


def rows_of(found: Outcome) -> Iterable[Row]:
    """The outcome in rows."""
    totals, settled = found.totals, found.samples[len(found.samples) // 5 :]
    waits = np.array(totals.seconds)
    note = (
        f"peak {found.peak:,.0f}/s with {AT_ONCE} at once, then {SHARE:.0%} of it;"
        f" {totals.requests:,} requests"
    )
    errors = "; ".join(f"{each.kind} {each.status} {each.error}" for each in found.failed[:2])[:200]
    yield at_most(
        "requests that failed",
        totals.requests - totals.good + totals.retried + totals.unasked,
        0,
        f"{note}. {errors}",
    )
    yield reported(
        "seconds of a request, p50",
        float(np.quantile(waits, 0.5)),
        f"p99 {np.quantile(waits, 0.99):.3f}, worst {waits.max():.3f}",
    )
    per_minute, error = slope(settled)
    begin, end = settled[0].memory, settled[-1].memory
    minutes = (settled[-1].at - settled[0].at) / 60
    note = (
        f"standard error {error:.3f}; {begin:.1f} to {end:.1f} MiB in {minutes:.1f} minutes,"
        f" {len(settled)} samples"
    )
    # a quick run is too short for the slope to mean anything
    name = "memory slope after warm-up, MiB a minute"
    yield at_most(name, per_minute, 0.05, note, full_only=True)
    highest = max(sample.descriptors for sample in settled)
    yield at_most(
        "file descriptors left over",
        found.descriptors_left,
        0,
        f"without connections kept to experts; at most {highest:.0f} under load",
    )
    yield at_most(
        "requests in flight left over",
        found.requests_left,
        0,
        f"at most {max(sample.in_flight for sample in settled):.0f} under load",
    )
    threads = [sample.threads for sample in settled]
    yield at_most(
        "threads that came after warm-up", threads[-1] - threads[0], 0, f"{threads[-1]:.0f} threads"
    )
    yield at_most("lines in the log beside requests", abs(found.lines), 0)
    worst = max(
        max(abs(seen - logged), abs(seen - told)) / seen
        for seen, logged, told in found.bills.values()
    )
    yield at_most(
        "bills that differ: clients, log, metrics; relative",
        worst,
        1e-9,
        f"{len(found.bills)} keys",
    )


def measure(quick: bool, minutes: float) -> Iterator[Row]:
    seconds, every, peak_seconds = (2.5, 0.25, 1.0) if quick else (minutes * 60, 5.0, 15.0)
    folder = Path(tempfile.mkdtemp(prefix="mildroute-soak-"))
    try:
        yield from rows_of(soak(folder, seconds, every, peak_seconds))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(__doc__ or "", measure, {"--minutes": {"type": float, "default": MINUTES}})
