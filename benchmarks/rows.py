"""The one language of all benchmarks: rows of name, value, limit, ok and note.

Exit 0 only if every bounded row holds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TextIO


@dataclass(frozen=True)
class Row:
    """One figure and the bound it is held to; a limit of None only reports.

    ``full_bound`` is said in place of a limit that a quick run is not held to.
    """

    name: str
    value: float
    limit: float | None
    ok: bool
    note: str = ""
    full_bound: str = ""

    def document(self) -> dict[str, Any]:
        """The row as JSON, in which a figure that was not measured is null."""
        value = self.value if math.isfinite(self.value) else None
        return {
            "name": self.name,
            "value": value,
            "limit": self.limit,
            "ok": bool(self.ok),
            "note": self.note,
        }


def at_most(
    name: str, value: float, limit: float, note: str = "", *, full_only: bool = False
) -> Row:
    """A figure that must not exceed its limit.

    ``full_only`` is for timings and for what needs much data: a quick run shares the machine with
    the tests of the gate, so it reports the figure and holds it to nothing.
    """
    bound = f"at most {limit:g} in a full run" if full_only else ""
    return Row(name, float(value), limit, value <= limit, note, bound)


def at_least(
    name: str, value: float, limit: float, note: str = "", *, full_only: bool = False
) -> Row:
    """A figure that must reach its limit; ``full_only`` as in ``at_most``."""
    bound = f"at least {limit:g} in a full run" if full_only else ""
    return Row(name, float(value), limit, value >= limit, note, bound)


def reported(name: str, value: float, note: str = "") -> Row:
    """A figure without a limit."""
    return Row(name, float(value), None, True, note)


def main(
    description: str,
    measure: Callable[..., Iterable[Row]],
    further: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Run ``measure(quick, **further)`` and print its rows as a table, or as JSON with ``--json``.

    Args:
        description: Of the script, for ``--help``.
        measure: Yields the rows.
        further: Options of this script alone, each with its arguments of ``add_argument``.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON list of rows")
    parser.add_argument("--quick", action="store_true", help="a version that ends within a minute")
    for name, arguments in (further or {}).items():
        parser.add_argument(name, **arguments)
    options = vars(parser.parse_args())
    quick = options.pop("quick")
    as_json = options.pop("json")
    output = stdout_alone() if as_json else sys.stdout
    rows = []
    for measured in measure(quick, **options):
        row = without_full_bound(measured) if quick else measured
        rows.append(row)
        if not as_json:
            print(line_of(row), flush=True)
    if as_json:
        print(json.dumps([row.document() for row in rows], indent=1), file=output, flush=True)
    print(
        f"{sum(row.ok for row in rows)} of {len(rows)} rows hold; {platform.machine()}, Python"
        f" {platform.python_version()}",
        file=sys.stderr,
    )
    sys.exit(0 if all(row.ok for row in rows) else 1)


def stdout_alone() -> TextIO:
    """Return the standard output, and send all else that is printed there to standard error.

    The descriptor itself is moved: Ray, torch and child processes write to it, too.
    """
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return output


def without_full_bound(row: Row) -> Row:
    """The row of a quick run."""
    if not row.full_bound:
        return row
    note = "; ".join(filter(None, (row.note, row.full_bound)))
    return replace(row, limit=None, ok=True, note=note)


def line_of(row: Row) -> str:
    bound = "" if row.limit is None else f"limit {row.limit:g}"
    mark = "ok " if row.ok else "NOT"
    return f"{mark} {row.name:<58} {row.value:>12.4g}  {bound:<14} {row.note}"
