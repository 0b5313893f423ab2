"""``python -m paper``: the tables of the paper, run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from paper.config import ExperimentConfig
    from paper.results import Store

# Results that come with the repository; their times tell how long a run takes.
_STORED = Path(__file__).parent / "results" / "linear"


def reproduce_tables(
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help=(
                "A table: 1a, 1b, 2a, 2b, 3a, 3b, 3c, severe, margins, noise, extreme, 1a-e2e,"
                " severe-e2e."
            ),
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tables.")] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="One line of each table on frozen vectors, one seed, four methods; minutes.",
        ),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="cpu (frozen vectors, a small network for -e2e) or paper (its networks).",
        ),
    ] = "cpu",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method in place of those of the table, see METHODS."),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Only lines of this data set.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Seeds of each experiment.", min=1)] = 5,
    store: Annotated[
        Path, typer.Option("--store", help="Folder of results; what it holds is not run again.")
    ] = Path("reproduction"),
    workers: Annotated[int, typer.Option("--workers", help="Processes.", min=1)] = 1,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="Merge the files of the store into one at the end."),
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say what is to be run and how long it takes, and stop.")
    ] = False,
    ledger: Annotated[
        Path | None,
        typer.Option(
            "--ledger", help="Write the table of all lines of the store to this Markdown file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run tables of the paper again; experiments that the store holds are not repeated.

    Example: python -m paper --table 1a --workers 2
    """
    from mildroute.exceptions import ArgumentError
    from paper.report import write_table
    from paper.results import Store
    from paper.run import run_cells
    from paper.tables import QUICK_METHODS, TABLES, cells_of

    names = list(TABLES) if everything else list(table or [])
    if quick:
        names, seeds = names or [name for name in TABLES if not TABLES[name].frozen], 1
        method = method or list(QUICK_METHODS)
    if not names and ledger is None and not merge:
        raise ArgumentError(
            "say which tables, got none; use --all, --quick, or --table with one of"
            f" {', '.join(TABLES)}."
        )
    results = Store(store)
    cells = cells_of(
        names,
        profile=profile,
        seeds=seeds,
        methods=method or (),
        data=data or (),
        first_line=quick,
    )
    if not as_json:
        _print_plan(cells, results)
    if plan_only:
        return
    with progress_bar("cells") as tell:
        ran = run_cells(cells, results, workers=workers, progress=tell)
    if merge:
        results.merge()
    found = _summary(names, results, seeds) if profile == "cpu" else []
    notes = [f"{len(cells)} cells, {ran} of them run now; results: {store}"]
    if ledger is not None:
        notes.append(f"table of {write_table(results, ledger, seeds=seeds)} results: {ledger}")
    if as_json:
        print_json(
            {
                "cells": len(cells),
                "ran": ran,
                "store": str(store),
                "ledger": str(ledger) if ledger else None,
                "lines": found,
            }
        )
        return
    _show(found)
    print_notes(notes, mark="")


def _print_plan(cells: list[ExperimentConfig], store: Store) -> None:
    """Print how many cells the store lacks, and how long they take by stored results."""
    from paper.results import Store
    from paper.run import expected_seconds, missing_cells

    if not cells:
        return
    missing = missing_cells(cells, store)
    times = {**Store(_STORED).read(), **store.read()}
    seconds, unknown = expected_seconds(missing, times.values())
    plan = f"{len(missing)} of {len(cells)} cells to run: about {_duration(seconds)} of one core"
    if unknown:
        plan += f", and {unknown} cells whose time is unknown"
    print_notes([plan], mark="")


def _summary(names: list[str], store: Any, seeds: int) -> list[dict[str, Any]]:
    from paper.summaries import figures_of
    from paper.tables import TABLES

    results = store.read()
    return [
        {
            "table": name,
            "row": each.line.row,
            "printed": {method: printed.loss for method, printed in each.printed.items()},
            "loss": {method: spread.mean for method, spread in each.spreads.items()},
            "against_tdef": {
                method: [gap.value, gap.low, gap.high] for method, gap in each.gaps.items()
            },
            "best_single": each.best_single,
            "oracle": each.oracle,
        }
        for name in names
        for each in figures_of(TABLES[name], results, seeds)
    ]


def _show(found: list[dict[str, Any]]) -> None:
    from paper.routers import METHODS

    for name in dict.fromkeys(line["table"] for line in found):
        lines = [line for line in found if line["table"] == name]
        methods = list(lines[0]["loss"])
        head = [
            "row",
            "paper TDEF",
            "paper MILD",
            "single",
            *(METHODS[method].label for method in methods),
            "oracle",
        ]
        rows = [
            [
                line["row"],
                *(_number(line["printed"].get(method)) for method in ("TDEF", "MILD")),
                _number(line["best_single"]),
                *(_number(line["loss"].get(method)) for method in methods),
                _number(line["oracle"]),
            ]
            for line in lines
        ]
        print_table(f"Table {name}, deferral loss", head, rows)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def main() -> None:
    """Run, and turn errors that are meant for users into one line."""
    from mildroute.exceptions import MildrouteError

    try:
        typer.run(reproduce_tables)
    except MildrouteError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
