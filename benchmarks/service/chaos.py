"""Chaos under load.

Experts die, hang, reset and err, artifacts come and go, the gateway itself is restarted; and the
books must agree.

Run: python benchmarks/service/chaos.py [--json] [--quick] [--cascade] [--minutes 5]
    [--requests 20000]

All are processes on loopback. At each moment at least one of three experts is well. Clients stream
and do not, with tools, over three keys, at a pace that does not wait for answers; they try again
only if nobody listens or their connection ends without a byte of an answer, which may happen while
the gateway is restarted, and is counted apart. A stream that its expert breaks off after the first
byte cannot be saved: it must end with an error event, and is counted apart, too.

Then two runs of so many requests through two gateways behind a TCP load balancer, where gateways
and experts are killed with kill -9 and clients never try again (see crashes.py). In the first run
three of five keys have small budgets, in the second one.

With --cascade the router looks at answers, of streams, too, and the bounds stay the same.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]
from books import Audit, audit
from crashes import Pauses, crash, crash_rows
from processes import House, house
from rows import Row, at_least, at_most, main, reported
from storm import Reloads, Storm
from traffic import Job, Told, Totals, Traffic

MINUTES, REQUESTS, DRAIN = 5.0, 20_000, 10
BUDGETS = ({"team-0": 0.02, "team-1": 0.02, "team-2": 0.05}, {"team-0": 0.05})
SETTINGS = f"""
failover:
  first_byte_timeout: 1.0
  attempt_timeout: 3.0
  idle_timeout: 3.0
  connect_timeout: 1.0
  timeout: 12.0
  max_attempts: 3
  drain_timeout: {DRAIN}
breaker: {{consecutive_failures: 3, cooldown: 0.3, max_cooldown: 2.0}}
encoder: {{timeout: 1.0}}
routing: {{stream_looks: hold}}
"""


@dataclass
class Plan:
    """How long and how hard."""

    seconds: float
    rate: float
    beat: float = 1.5
    reload_every: float = 5.0
    restarts: bool = True
    cascade: bool = False


@dataclass
class Outcome:
    """What came of it."""

    audit: Audit
    unasked: int = 0
    reloads: int = 0
    refused: int = 0
    reload_faults: list[str] = field(default_factory=list)
    faults: int = 0
    away: float = 0.0
    retried_outside: int = 0
    drained: int = 0
    in_drain: int = 0
    drain_seconds: float = 0.0
    tracebacks: int = 0


def rage(folder: Path, plan: Plan) -> Outcome:
    """Everything at once, then an end in good order."""
    with house(folder, SETTINGS, cascade=plan.cascade) as ours:
        traffic = Traffic(
            Job(ours.port, ours.keys, plan.rate, plan.seconds, str(folder / "clients.jsonl"))
        ).start()
        storm, reloads = Storm(ours, plan.beat), Reloads(ours, plan.reload_every)
        storm.start()
        reloads.start()
        windows = []
        time.sleep(plan.seconds / 2)
        if plan.restarts:
            with reloads.paused():
                windows.append(restart(ours))
        told, totals = traffic.finish()
        storm.stop()
        reloads.stop()
        late, late_totals, drain_seconds = drain(ours, folder, first=len(told) + 1)
        found = audit(
            [*told, *late],
            folder / "log",
            {name: expert.answered() for name, expert in ours.experts.items()},
        )
        return Outcome(
            audit=found,
            unasked=totals.unasked + late_totals.unasked,
            reloads=reloads.done,
            refused=reloads.refused,
            reload_faults=reloads.faults,
            faults=sum(storm.faults.values()),
            away=sum(end - begin for begin, end in windows),
            retried_outside=sum(
                1
                for each in told
                if each.retries and not any(is_within(each, *window) for window in windows)
            ),
            drained=sum(each.is_good for each in late),
            in_drain=len(late),
            drain_seconds=drain_seconds,
            tracebacks=ours.gateway.output().count("Traceback"),
        )


def restart(ours: House) -> tuple[float, float]:
    """End the gateway in good order and start it on the same port; when it was away."""
    begun = time.time()
    ours.gateway.stop(DRAIN + 30)
    ours.gateway.start()
    return begun, time.time()


def is_within(told: Told, begin: float, end: float) -> bool:
    return told.at <= end + 0.5 and told.at + told.seconds >= begin


def drain(ours: House, folder: Path, first: int) -> tuple[list[Told], Totals, float]:
    """Stop the gateway while slow streams are under way, each of which must come to its end."""
    for expert in ours.experts.values():
        expert.tell("ok", pause=0.2)
    rate, count = 60.0, 20
    job = Job(
        ours.port,
        ours.keys,
        rate,
        (count - 0.5) / rate,
        str(folder / "late.jsonl"),
        first_number=first,
        kinds={"stream": 1},
    )
    traffic = Traffic(job).start()
    until = time.monotonic() + 20
    while in_flight(ours) < count and time.monotonic() < until:
        time.sleep(0.02)
    seconds = ours.gateway.stop(DRAIN + 30)
    told, totals = traffic.finish()
    return told, totals, seconds


def in_flight(ours: House) -> float:
    found = [
        line
        for line in ours.gateway.metrics().splitlines()
        if line.startswith("mildroute_in_flight ")
    ]
    return float(found[0].split()[1]) if found else 0.0


def rows_of(found: Outcome, *, cascade: bool) -> Iterable[Row]:
    """The outcome in rows."""
    books, failed = found.audit, found.audit.requests - found.audit.good
    mute = sum(
        count
        for fault, count in books.faults.items()
        if fault.startswith("failed: 200") and "error event" not in fault
    )
    saved = books.requests - books.broken_streams
    note = (
        f"{books.requests:,} requests, {failed} failed, {books.broken_streams} of them streams"
        f" broken off; {found.faults} faults"
    )
    yield at_least(
        "requests that succeed, %, but for streams broken off",
        100 * books.good / max(saved, 1),
        99.9,
        note,
    )
    yield reported("requests that succeed, %, all", 100 * books.good / max(books.requests, 1))
    if cascade:
        looked = 100 * books.looks / max(books.lines, 1)
        yield at_least("requests whose answers were looked at, %", looked, 50)
    yield at_most("streams broken off without an error event", mute, 0)
    yield at_most(
        "answers that nobody asked for, or to another question",
        found.unasked + books.faults["answers to another question"],
        0,
    )
    yield at_most(
        "requests that were decided twice", books.faults["requests that were decided twice"], 0
    )
    yield at_most(
        "decisions with no line in the log, or with two",
        lines_wrong(books),
        0,
        f"{books.lines:,} lines",
    )
    yield at_most(
        "lines with another key, expert, tokens or dollars",
        others(books),
        0,
        "; ".join(books.examples.get(name, "") for name in wrong(books))[:300],
    )
    yield at_most(
        "reloads that failed",
        len(found.reload_faults),
        0,
        f"{found.reloads} done, {found.refused} bad artifacts refused; "
        + "; ".join(found.reload_faults[:3]),
    )
    yield at_most(
        "connections lost but for the restart",
        found.retried_outside,
        0,
        f"{books.retried} tried again; away for {found.away:.1f} s",
    )
    yield at_least(
        "streams under way at SIGTERM that ended well, %",
        100 * found.drained / max(found.in_drain, 1),
        100,
        f"{found.in_drain} streams",
    )
    yield at_most("seconds from SIGTERM to the end", found.drain_seconds, DRAIN + 5)
    yield at_most("tracebacks in the gateway's output", found.tracebacks, 0)
    failures = ", ".join(f"{count} x {fault}" for fault, count in books.faults.most_common(4))
    yield reported("failures by kind", failed, failures)
    yield reported("faults of experts", found.faults)
    yield reported("reloads that were taken", found.reloads)
    yield reported("reloads that were rejected", found.refused)


def lines_wrong(books: Audit) -> int:
    names = (
        "decisions without a line",
        "decision ids with two lines",
        "lines that belong to no request, or to another key",
    )
    return sum(books.faults[name] for name in names)


def wrong(books: Audit) -> list[str]:
    return [
        name
        for name in books.faults
        if name.startswith(("lines with", "keys with", "answers with", "answers that"))
    ]


def others(books: Audit) -> int:
    return sum(books.faults[name] for name in wrong(books))


def measure(quick: bool, minutes: float, requests: int, cascade: bool) -> Iterator[Row]:
    plan = Plan(4.0, 20.0, beat=0.4, reload_every=0.5) if quick else Plan(minutes * 60, 60.0)
    plan.cascade = cascade
    folder = Path(tempfile.mkdtemp(prefix="mildroute-chaos-"))
    pauses = Pauses((2.0, 3.0), (2.0, 3.0), (0.1, 0.3), (1.0, 2.0)) if quick else Pauses()
    runs = BUDGETS[:1] if quick else BUDGETS
    try:
        yield from rows_of(rage(folder / "storm", plan), cascade=cascade)
        for place, budgets in enumerate(runs, start=1):
            # Of 600 requests, the few that meet two faults at once are more than 0.1%.
            count, limit = (600, 1.0) if quick else (requests, 0.1)
            found = crash(folder / f"crashes-{place}", count, budgets, pauses, cascade=cascade)
            yield from crash_rows(found, count, f"two gateways, run {place}", limit)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(
        __doc__ or "",
        measure,
        {
            "--minutes": {"type": float, "default": MINUTES},
            "--requests": {"type": int, "default": REQUESTS},
            "--cascade": {"action": "store_true"},
        },
    )
