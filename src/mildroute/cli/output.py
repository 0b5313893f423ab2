"""What commands print: JSON for programs, tables for people, progress on the error stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

__all__ = ["duration", "print_json", "print_notes", "print_table", "progress_bar"]

_WIDTH_OF_FILES = 140


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, as people say them.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_json(value: Any) -> None:
    """Print one JSON document; numbers that JSON does not know are null.

    Example:
        >>> print_json({"rows": 3, "regret": float("nan")})
        {
          "rows": 3,
          "regret": null
        }
    """
    typer.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False))


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; the first column is text, the others are numbers.

    Example:
        >>> print_table("Experts", ["expert", "score"], [["small", ".71"]])  # doctest: +ELLIPSIS
        Experts...
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    # Where nobody looks, in a file or a pipe, lines need not fit a screen.
    Console(width=None if sys.stdout.isatty() else _WIDTH_OF_FILES).print(table)


def print_notes(notes: Sequence[str], mark: str = "-") -> None:
    """Print sentences, one a line.

    Example:
        >>> print_notes(["no dollars"])
        - no dollars
    """
    for note in notes:
        typer.echo(f"{mark} {note}")


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """A bar with the time left on the error stream; gone when it is done, and not drawn where nobody looks.

    Example:
        >>> with progress_bar("fit") as tell:
        ...     tell(1, 2, "first")
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total, _word: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.fields[title]}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[word]}"))
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None, title=title, word="")
        yield lambda done, total, word: progress.update(task, completed=done, total=total, word=word)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not (float("-inf") < value < float("inf")):
        return None
    return value
