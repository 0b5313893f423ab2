"""``python -m paper``: run the tables of the paper again, or show the stored results."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paper.config import ExperimentConfig
    from paper.results import Store
    from paper.summaries import LineFigures

_STORED = Path(__file__).parent / "results" / "linear"


def reproduce_tables(
    table: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="A table: 1a, 1b, 2a, 2b, 3a, 3b, 3c, severe, margins, noise, extreme.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All tables.")] = False,
    stored: Annotated[
        bool,
        typer.Option(
            "--stored",
            help="Show the results in paper/results, of all tables or of --table; run nothing.",
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="One line of each table, one seed, four methods: a few minutes."
        ),
    ] = False,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            help="cpu (linear routers on frozen vectors) or paper (its networks).",
        ),
    ] = "cpu",
    method: Annotated[
        list[str] | None,
        typer.Option("--method", help="A method of paper/routers.py instead of the table's."),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Only lines of this data set.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", help="Seeds of each experiment.", min=1)] = 5,
    store: Annotated[
        Path,
        typer.Option("--store", help="Folder of results. Results that it has are not run again."),
    ] = Path("reproduction"),
    workers: Annotated[int, typer.Option("--workers", help="Processes.", min=1)] = 1,
    merge: Annotated[
        bool, typer.Option("--merge", help="Merge the files of the store into one at the end.")
    ] = False,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Print what would run and how long it takes, and stop.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run tables of the paper again, and show them beside its figures.

    Example: python -m paper --table 1a --workers 2
    """
    from mildroute.exceptions import ArgumentError
    from paper.results import Store
    from paper.run import run_cells
    from paper.tables import QUICK_METHODS, TABLES, cells_of

    names = list(table or TABLES) if everything or quick or stored else list(table or [])
    if quick:
        seeds = 1
        method = method or list(QUICK_METHODS)
    if not names and not merge:
        raise ArgumentError(
            "say which tables, got none; use --stored, --all, --quick, or --table with one of"
            f" {', '.join(TABLES)}."
        )
    results = Store(_STORED if stored else store)
    cells = (
        []
        if stored
        else cells_of(
            names,
            profile=profile,
            seeds=seeds,
            methods=method or (),
            data=data or (),
            first_line=quick,
        )
    )
    if cells and not as_json:
        _print_plan(cells, results)
    if plan_only:
        return
    with progress_bar("cells") as progress:
        ran = run_cells(cells, results, workers=workers, progress=progress)
    if merge:
        results.merge()
    notes = [f"{len(cells)} cells, {ran} of them run now; results: {results.folder}"]
    figures = _figures(names, results, seeds) if profile == "cpu" else {}
    if as_json:
        lines = [line for name in figures for line in _json_lines(name, figures[name])]
        print_json({"cells": len(cells), "ran": ran, "store": str(results.folder), "lines": lines})
        return
    for name, lines_of_table in figures.items():
        _print_figures(name, lines_of_table)
    print_notes(notes, mark="")


def _print_plan(cells: list[ExperimentConfig], store: Store) -> None:
    """Print how many cells the store lacks, and how long they take by stored results."""
    from paper.results import Store
    from paper.run import expected_seconds, missing_cells

    missing = missing_cells(cells, store)
    times = {**Store(_STORED).read(), **store.read()} if missing else {}
    seconds, unknown = expected_seconds(missing, times.values())
    plan = f"{len(missing)} of {len(cells)} cells to run: about {_duration(seconds)} of one core"
    if unknown:
        plan += f", and {unknown} cells whose time is unknown"
    print_notes([plan], mark="")


def _figures(names: Sequence[str], store: Store, seeds: int) -> dict[str, list[LineFigures]]:
    from paper.summaries import figures_of
    from paper.tables import TABLES

    results = store.read()
    figures = {name: figures_of(TABLES[name], results, seeds) for name in names}
    return {name: lines for name, lines in figures.items() if lines}


def _json_lines(name: str, lines: Sequence[LineFigures]) -> list[dict[str, Any]]:
    return [
        {
            "table": name,
            "row": each.line.row,
            "printed": {method: printed.loss for method, printed in each.printed.items()},
            "loss": each.losses,
            "against_tdef": {
                method: [gap.value, gap.low, gap.high] for method, gap in each.gaps.items()
            },
            "best_single": each.best_single,
            "oracle": each.oracle,
        }
        for each in lines
    ]


def _print_figures(name: str, lines: Sequence[LineFigures]) -> None:
    from paper.routers import METHODS
    from paper.tables import TABLES

    methods = [
        method for method in TABLES[name].methods if any(method in each.losses for each in lines)
    ]
    labels = [METHODS[method].label for method in methods]
    rows = [
        [
            each.line.row if each.line.in_paper else f"{each.line.row} *",
            *(_number(each.printed_loss(method)) for method in ("TDEF", "MILD")),
            _number(each.best_single),
            *(_number(each.losses.get(method)) for method in methods),
            _number(each.oracle),
        ]
        for each in lines
    ]
    head = ["row", "paper: TDEF", "paper: MILD", "single", *labels, "oracle"]
    star = "" if all(each.line.in_paper for each in lines) else "; * not in the paper"
    print_table(f"Table {name}: {TABLES[name].title}{star}", head, rows)


def _duration(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def main() -> None:
    """Run the command, and print errors that are meant for users in one line."""
    from mildroute.exceptions import MildrouteError

    try:
        typer.run(reproduce_tables)
    except MildrouteError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
