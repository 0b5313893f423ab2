"""The page about other projects' own code on our splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quality_page import VERDICTS, read, verdicts
from wording import table

DEFAULT = "MildRouter()"
OWN = (DEFAULT, "oracle", "best single", "kNN")


def peers(results: Path) -> list[str]:
    """The page: a summary, then the stored report."""
    rows, _ = read(results / "peers.parquet")
    title, *report = (results / "peers.md").read_text(encoding="utf-8").splitlines()
    return [
        title,
        "",
        (
            "Each method is its authors' code, trained on the same rows and asked the same test"
            " rows as `MildRouter()`, with the same sentence vectors (MiniLM). Most of these"
            " methods were made for another setting. How each was adapted, and what had to be"
            " replaced, is stated below. A project's published weights, or its own vectors, may"
            " do better."
        ),
        "",
        (
            "`MildRouter()` also gets the group (data set or subject) of each training row, on"
            " tasks 1 to 7. The other methods do not. No method gets the group of a test row."
        ),
        "",
        "## Summary",
        "",
        *headline(rows),
        "",
        *summary(rows),
        "",
        "## Origin",
        *report,
    ]


def headline(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many pairs of a method and a task go either way."""
    better, even, worse = (sum(part) for part in zip(*counts(rows).values(), strict=True))
    ahead = sum(row["cost"] < row["default_cost"] for row in rows if row["method"] not in OWN)
    return [
        (
            f"Of {better + even + worse} pairs of a method and a task, the default is significantly"
            f" better on {better} and significantly worse on {worse}. On the other {even} the"
            f" difference is not significant. On {ahead} pairs the mean cost of the method is below"
            " that of the default. Methods with few seeds can show only large differences."
        )
    ]


def summary(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """On how many tasks the default is better, not significantly different, or worse."""
    cells = [
        [name, seeds_of(rows, name), str(sum(count)), *map(str, count)]
        for name, count in counts(rows).items()
    ]
    return table(("method", "seeds", "tasks", *VERDICTS), cells)


def seeds_of(rows: Sequence[Mapping[str, Any]], method: str) -> str:
    """The number of seeds, or the lowest and the highest over the tasks."""
    seeds = sorted({row["seeds"] for row in rows if row["method"] == method})
    return " to ".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))


def counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int, int]]:
    """Tasks on which the default is better, not significantly different, and worse."""
    names = dict.fromkeys(row["method"] for row in rows if row["method"] not in OWN)
    return {name: verdicts(rows, name) for name in names}
