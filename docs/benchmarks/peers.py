"""What was measured against other programs and against their kind of method, each in one run.

A part of docs/compare.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import frontier
from peers_page import headline, summary
from quality_page import VERDICTS, read, verdicts
from wording import figure, table, with_interval

BEGIN, END = (
    "<!-- measured: begin (written by docs/benchmarks/generate.py) -->",
    "<!-- measured: end -->",
)
METHODS = {
    "kNN": "kNN, tuned",
    "linear regression": "cost regression, linear",
    "MLP regression": "cost regression, network",
    "matrix factorization": "matrix factorization",
}
LITELLM = "requests per second / LiteLLM proxy"


def measured(results: Path, runs: Mapping[str, dict[str, Any]]) -> list[str]:
    """The lines between the marks."""
    gateway = {row["name"]: row for row in runs["gateway"]["rows"]}[LITELLM]
    return [
        *their_code(results),
        "",
        *own_versions(results),
        "",
        *same_bills(results),
        "",
        (
            f"The gateway serves {figure(gateway['value'])} times as many requests a second as the"
            f" LiteLLM proxy ({gateway['note']}; 64 connections, one worker each, loopback, two"
            " cores shared with the load; `python benchmarks/speed/gateway.py`). LiteLLM answered"
            " from its own mock model, without a call upstream and without a database; it is the"
            " broader program, and is built to be run as many workers."
        ),
    ]


def their_code(results: Path) -> list[str]:
    """The default beside other projects' own code."""
    rows, _ = read(results / "peers.parquet")
    return [
        (
            "**Their own code**, trained and asked on our rows: on how many tasks `MildRouter()` is"
            " significantly better or worse ([costs, intervals and"
            " adaptations](benchmarks/peers.md), `python benchmarks/peers/run.py`)."
        ),
        *headline(rows),
        "",
        *summary(rows),
    ]


def own_versions(results: Path) -> list[str]:
    """The default beside our own versions of peers' kinds of method."""
    rows, _ = read(results / "quality.parquet")
    return [
        (
            "**Our own versions** of their kinds of method: on how many of nine tasks"
            " `MildRouter()` is significantly better or worse than each ([all of"
            " them](benchmarks/quality.md), `python benchmarks/quality/run.py`):"
        ),
        "",
        *table(
            ("our version of", *VERDICTS),
            ([shown, *map(str, verdicts(rows, method))] for method, shown in METHODS.items()),
        ),
    ]


def same_bills(results: Path) -> list[str]:
    """What the fitted router scores more than kNN at the same bill."""
    found = frontier.stored(results / "frontier.parquet").figures
    return [
        (
            "The router that `mildroute fit` makes, minus tuned kNN at the same bill on RouterBench"
            " questions, in points of score with the 95% interval"
            " ([picture](benchmarks/quality.md), `python benchmarks/quality/curves.py`):"
        ),
        "",
        *table(
            ("dollars per 1,000", "same vectors", "kNN on MiniLM"),
            (
                [
                    bill,
                    *(
                        with_interval(
                            found[f"router minus {name} at {bill}"], scale=100, digits=1, sign="+"
                        )
                        for name in ("knn", "knn minilm")
                    ),
                ]
                for bill in ("0.5", "1", "2", "3", "4")
            ),
        ),
    ]


def renewed(page: str, lines: list[str]) -> str:
    """The page with what stands between the marks replaced."""
    head, rest = page.split(BEGIN)
    return "\n".join([head + BEGIN, "", *lines, "", END]) + rest.split(END)[1]
