"""A slow reading of a cost table in plain Python.

What the numbers must be, or that there are none.
"""

from __future__ import annotations

import math
from typing import Any

Columns = dict[str, list[Any]]


class RefusedError(Exception):
    """The rules do not allow this table."""


def read(
    columns: Columns, *, missing: str = "raise", parse: bool = False
) -> dict[str, dict[str, float | str]]:
    """Rows by id, each with its numbers by column name; follows the written rules one by one."""
    experts = [name.removeprefix("score:") for name in columns if name.startswith("score:")]
    check_names(columns, experts)
    numbers = [
        name
        for name in columns
        if name.split(":")[0] in {"score", "cost", "latency"} and ":" in name
    ]
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    found: dict[str, dict[str, float | str]] = {}
    for number, row in enumerate(rows):
        query, kept = (
            str(row.get("query_id", number)),
            kept_of(row, numbers, missing=missing, parse=parse),
        )
        if kept is not None and found.setdefault(query, kept) != kept:
            raise RefusedError(f"another row {number}")
    if not found:
        raise RefusedError("no rows")
    return found


def kept_of(
    row: dict[str, Any], numbers: list[str], *, missing: str, parse: bool
) -> dict[str, float | str] | None:
    """The numbers of a row, or none where it is dropped."""
    cells = {name: number_of(row[name], parse=parse) for name in numbers}
    lost = [name for name in numbers if name.startswith("score:") and cells[name] is None]
    if (
        (lost and missing == "raise")
        or row.get("query_id", 0) is None
        or row.get("input", "") is None
    ):
        raise RefusedError("a missing score, id or input")
    if lost and missing == "drop":
        return None
    for name in lost:
        expert = name.removeprefix("score:")
        for other in (f"score:{expert}", f"cost:{expert}", f"latency:{expert}"):
            cells |= {other: 0.0} if other in cells and cells[other] is None else {}
    return {name: in_range(name, value) for name, value in cells.items()} | {
        "input": row.get("input", "")
    }


def check_names(columns: Columns, experts: list[str]) -> None:
    if len(experts) < 2 or any(
        not name or name != name.strip() or not name.isprintable() for name in experts
    ):
        raise RefusedError("experts")
    for prefix in ("cost:", "latency:"):
        owners = {name.removeprefix(prefix) for name in columns if name.startswith(prefix)}
        if owners and owners != set(experts):
            raise RefusedError("owners")


def number_of(value: Any, *, parse: bool) -> float | None:
    if parse and isinstance(value, str):
        word = value.strip().lower()
        value = {"true": True, "false": False, "": None, "na": None}.get(word, word)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                raise RefusedError(f"no number: {word}") from None
    if value is None:
        return None
    if not isinstance(value, (bool, int, float)):
        raise RefusedError(f"no number: {value!r}")
    return None if math.isnan(value) else float(value)


def in_range(name: str, value: float | None) -> float:
    lowest, highest = (0.0, 1.0) if name.startswith("score:") else (1e-12, 1e9)
    if value is None or not (value == 0 or lowest <= value <= highest):
        raise RefusedError(f"out of range: {name} {value}")
    return value
