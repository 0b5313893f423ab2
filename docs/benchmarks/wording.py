"""Figures and tables as the pages write them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, the first column to the left and the others to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "--:|" * (len(heads) - 1)]
    return [
        *lines,
        *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows),
    ]


def as_list(told: Mapping[str, str]) -> list[str]:
    """Named facts as a list, without the empty ones."""
    return [f"- {name}: {value}" for name, value in told.items() if value]


def figure(value: float) -> str:
    """Three significant digits, or all digits of a whole number."""
    if math.isnan(value):
        return "not measured"
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def mark_options(text: str) -> str:
    """Text in which options of a command stand as code, so that their two dashes stay."""
    return re.sub(r"(?<!\S)(--[a-z][a-z-]*)", r"`\1`", text)


def with_interval(
    found: Mapping[str, float], *, scale: float = 1.0, digits: int = 3, sign: str = ""
) -> str:
    """A value and its interval in brackets."""
    value, low, high = (
        f"{round(scale * found[key], digits) + 0.0:{sign}.{digits}f}"
        for key in ("value", "low", "high")
    )  # no -0.0
    return f"{value} [{low}, {high}]"
