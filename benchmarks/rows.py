"""The one language of all benchmarks: rows of name, value, limit, ok and note; exit 0 only if every bounded row holds."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Row:
    """One figure and the bound it is held to; a limit of None only reports."""

    name: str
    value: float
    limit: float | None
    ok: bool
    note: str = ""


def at_most(name: str, value: float, limit: float, note: str = "") -> Row:
    """A figure that must not exceed its limit."""
    return Row(name, value, limit, value <= limit, note)


def at_least(name: str, value: float, limit: float, note: str = "") -> Row:
    """A figure that must reach its limit."""
    return Row(name, value, limit, value >= limit, note)


def reported(name: str, value: float, note: str = "") -> Row:
    """A figure without a limit."""
    return Row(name, value, None, True, note)


def main(description: str, measure: Callable[[bool], Iterable[Row]]) -> None:
    """Run ``measure(quick)`` and print its rows as a table, or as JSON with ``--json``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON list of rows")
    parser.add_argument("--quick", action="store_true", help="a version that ends within a minute")
    options = parser.parse_args()
    rows = []
    for row in measure(options.quick):
        rows.append(row)
        if not options.json:
            bound = "" if row.limit is None else f"limit {row.limit:g}"
            print(f"{'ok ' if row.ok else 'NOT'} {row.name:<58} {row.value:>12.4g}  {bound:<14} {row.note}", flush=True)
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    print(
        f"{sum(row.ok for row in rows)} of {len(rows)} rows hold; {platform.machine()}, Python {platform.python_version()}", file=sys.stderr
    )
    sys.exit(0 if all(row.ok for row in rows) else 1)
