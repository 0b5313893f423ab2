"""Figures of two checkouts side by side: the same scripts of each, in turn, best of some rounds.

Run: python -m benchmarks.compare BEFORE AFTER [--scripts LIST] [--rounds 2] [--quick] [--out FILE]

Each side runs its own scripts on its own sources. The order is before, after, before, after, so
that a machine that slows down slows both. Best is the largest value of a row that must reach its
limit and the smallest of one that must not exceed it; other rows have their median. A script may
have options after its path: --scripts "speed/losses.py,speed/collect.py --quick --cells 40000".
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.record import machine, rows_of

# The loss in full takes 40 s on two quiet cores; all others in full would take 20 minutes a side.
# 40,000 cells is the least at which the bare loops make the same calls in every version.
SCRIPTS = (
    "speed/losses.py,speed/routers.py --quick,speed/tables.py --quick,speed/gateway.py --quick,"
    "speed/collect.py --quick --cells 40000"
)
SIDES = ("before", "after")
HELP = "from mildroute.cli.app import app; app()"
HELP_SCRIPT, HELP_ROW = "mildroute --help", "seconds of mildroute --help"
FULL_BOUND = re.compile(r"(at most|at least) \S+ in a full run$")


@dataclass
class Figure:
    """One row of one script, on both sides."""

    script: str
    name: str
    limit: float | None = None
    bound: str | None = None
    values: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})

    def add(self, side: str, row: dict[str, Any]) -> None:
        """Take the row of one run; one that was not measured is passed over."""
        value = row["value"]
        if value is None or value != value:
            return
        self.values[side].append(value)
        if row["limit"] is not None:
            self.limit = row["limit"]
            is_upper = (value <= row["limit"]) == row["ok"]
            self.bound = "at most" if is_upper else "at least"
        elif found := FULL_BOUND.search(row["note"]):
            self.bound = self.bound or found[1]

    def best(self, side: str) -> float:
        choose = {"at most": min, "at least": max, None: statistics.median}[self.bound]
        return float(choose(self.values[side]))

    def document(self) -> dict[str, Any]:
        before, after = (self.best(side) for side in SIDES)
        return {
            "script": self.script,
            "name": self.name,
            "bound": self.bound,
            "limit": self.limit,
            "before": before,
            "after": after,
            "ratio": after / before if before else None,
            "values": self.values,
        }


def compare(
    checkouts: dict[str, Path], scripts: Sequence[list[str]], rounds: int
) -> tuple[list[Figure], dict[str, float]]:
    """Figures of all scripts, and the seconds that each took on each side."""
    figures: dict[tuple[str, str], Figure] = {}
    seconds: dict[str, float] = {}
    for script, *options in scripts:
        for turn in range(rounds):
            for side, checkout in checkouts.items():
                start = time.perf_counter()
                rows = rows_of_side(checkout, script, options)
                spent = time.perf_counter() - start
                seconds[f"{script}, {side}"] = round(seconds.get(f"{script}, {side}", 0) + spent, 1)
                print(
                    f"{script}, {side}, round {turn + 1} of {rounds}: {spent:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
                for row in rows:
                    key = script, row["name"]
                    figures.setdefault(key, Figure(*key)).add(side, row)
    return [each for each in figures.values() if all(each.values.values())], seconds


def rows_of_side(checkout: Path, script: str, options: list[str]) -> list[dict[str, Any]]:
    """Rows of a script of a checkout, or how long its ``mildroute --help`` takes."""
    if script != HELP_SCRIPT:
        return rows_of(
            checkout / "benchmarks" / script, options, environment=environment_of(checkout)
        )
    words = [sys.executable, "-c", HELP, "--help"]
    start = time.perf_counter()
    subprocess.run(
        words, env={**os.environ, **environment_of(checkout)}, check=True, capture_output=True
    )
    # A limit that always holds: less is better.
    value = time.perf_counter() - start
    return [{"name": HELP_ROW, "value": value, "limit": 60.0, "ok": True, "note": ""}]


def environment_of(checkout: Path) -> dict[str, str]:
    """Sources of the checkout before those that are installed."""
    return {"PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}


def commit_of(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def line_of(figure: dict[str, Any]) -> str:
    ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.3f}"
    return (
        f"{figure['before']:>12.4g} {figure['after']:>12.4g} {ratio:>8}  {figure['bound'] or '':<9}"
        f" {figure['script']}: {figure['name']}"
    )


def main() -> None:
    """Compare two checkouts and write one JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--scripts", default=SCRIPTS, help="paths below benchmarks, with options")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="run every script with --quick")
    parser.add_argument("--out", type=Path, default=Path("compare.json"))
    options = parser.parse_args()
    checkouts = {side: getattr(options, side).resolve() for side in SIDES}
    quick = ["--quick"] if options.quick else []
    scripts = [[*shlex.split(words), *quick] for words in options.scripts.split(",")]
    load = os.getloadavg()[0]
    figures, seconds = compare(checkouts, scripts, options.rounds)
    starts, _ = compare(checkouts, [[HELP_SCRIPT]], 5 * options.rounds)
    found = {
        **{side: commit_of(checkout) for side, checkout in checkouts.items()},
        "scripts": [" ".join(words) for words in scripts],
        "rounds": options.rounds,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load_before": round(load, 1),
        "machine": machine(),
        "seconds": seconds,
        "rows": [each.document() for each in [*figures, *starts]],
    }
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"{'before':>12} {'after':>12} {'ratio':>8}")
    for row in found["rows"]:
        print(line_of(row))


if __name__ == "__main__":
    main()
