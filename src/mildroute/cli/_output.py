"""Print tables, sentences, JSON and progress bars."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from mildroute.fitting.result import Line


_FILE_WIDTH = 140


def duration(seconds: float) -> str:
    """Return a human-readable duration in seconds, minutes or hours.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_json(value: Any) -> None:
    """Print one JSON document, with ``null`` for numbers that JSON does not support.

    Example:
        >>> print_json({"rows": 3, "regret": float("nan")})
        {
          "rows": 3,
          "regret": null
        }
    """
    from mildroute._format import to_jsonable

    typer.echo(json.dumps(to_jsonable(value), indent=2, ensure_ascii=False))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are numbers.

    Example:
        >>> print_table("Experts", ["expert", "score"], [["small", "0.71"]])  # doctest: +ELLIPSIS
        Experts...
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for index, name in enumerate(head):
        table.add_column(name, justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if sys.stdout.isatty():
        Console().print(table)
        return
    # In a file or a pipe, lines need not fit a screen, and trailing blanks have no use.
    console = Console(width=_FILE_WIDTH)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        typer.echo(line.rstrip())


def print_lines(lines: Sequence[Line]) -> None:
    """Print the dollars and quality of today's expert, the simplest alternative and the router.

    Example:
        >>> print_lines(())
    """
    if not lines:
        return
    rows = [
        [
            line.role,
            _format_figure(line.dollars_per_1000, "{:.4g}", "{:.3g}"),
            _format_figure([100 * end for end in line.saved], "{:.0f}%", "{:.0f}"),
            _format_figure([100 * end for end in line.kept], "{:.1f}%", "{:.1f}"),
        ]
        for line in lines
    ]
    print_table("", ["", "$ per 1,000", "saved", "best score kept"], rows)
    print_notes([f"{line.role}: {line.words}" for line in lines], mark="")


def _format_figure(figure: Sequence[float], value_format: str, bound_format: str) -> str:
    """Return a figure with its interval, unless the interval has zero width."""
    value, low, high = figure
    if math.isnan(value):
        return "unknown"
    # Avoids a negative zero.
    first, last = (bound_format.format(end + 0.0 if round(end, 4) else 0.0) for end in (low, high))
    formatted = value_format.format(value if round(value, 4) else 0.0)
    return formatted if first == last else f"{formatted} [{first}, {last}]"


def print_notes(notes: Sequence[str], mark: str = "-") -> None:
    """Print sentences, one per line.

    Example:
        >>> print_notes(["no dollars"])
        - no dollars
    """
    for note in notes:
        print_sentence(f"{mark} {note}")


def print_sentence(text: str) -> None:
    """Print one sentence, wrapped to the width of a terminal.

    Example:
        >>> print_sentence("router in router, learned from 240 queries")
        router in router, learned from 240 queries
    """
    typer.echo(wrap(text, sys.stdout))


def wrap(text: str, stream: TextIO) -> str:
    """Return a sentence wrapped to the terminal's width; unchanged in a file or a pipe."""
    if not stream.isatty():
        return text
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def print_errors(notes: Sequence[str]) -> None:
    """Print notes on the error stream.

    Example:
        >>> print_errors(())
    """
    for note in notes:
        typer.echo(wrap(f"note: {note}", sys.stderr), err=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that updates a progress bar on the error stream.

    The bar disappears at the end, and is not drawn in a file or a pipe.

    Example:
        >>> with progress_bar("fit") as report:
        ...     report(1, 2, "first")
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total, _label: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.fields[title]}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
    )
    times = (
        TimeElapsedColumn(),
        TextColumn("remaining"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[label]}"),
    )
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as progress:
        # Hidden until the total is known.
        task = progress.add_task("", total=None, visible=False, title=title, label="")
        yield lambda done, total, label: progress.update(
            task, completed=done, total=total, label=label, visible=True
        )
