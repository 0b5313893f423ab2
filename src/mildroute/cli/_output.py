"""Input and output of commands: cost tables, printed tables, JSON and progress bars."""

from __future__ import annotations

import json
import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mildroute.exceptions import ArgumentError, TableError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.fitting.result import Line


_WIDTH_OF_FILES = 140


def check_counted(missing: str) -> None:
    """Refuse ``--missing keep``, which only fitting supports."""
    if missing == "keep":
        raise ArgumentError(
            "--missing keep is only for 'mildroute fit' without --hold-out, which estimates the"
            " scores of experts that were not asked; give raise, zero or drop."
        )


def load_table(
    source: str,
    *,
    experts: str | Sequence[str] | None = None,
    prices: Path | None = None,
    output_tokens: float | None = None,
    missing: str = "raise",
    answers: bool = False,
    partial: bool = False,
    price_unit: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> CostTable:
    """Read a table, select experts and add dollars.

    Guesses about columns and the treatment of missing scores are reported on the error stream.

    Args:
        source: Path or URL.
        experts: Names in a list or separated by commas; ``None`` selects all experts.
        prices: File of list prices, or ``None``.
        output_tokens: Tokens of an answer, if the table has no counts.
        missing: Treatment of a missing score.
        answers: Whether to read the answers as well.
        partial: Whether experts may have been left out for some queries, which allows
            ``missing="keep"``.
        price_unit: Number of tokens that the list prices are for; ``None`` uses the file's unit.
        columns: Roles of columns, as arguments of ``CostTable.read``.

    Returns:
        The table.

    Example:
        >>> load_table("no/such.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: 'no/such.parquet' does not exist; check the path.
    """
    from mildroute.costs.prices import PriceList
    from mildroute.costs.table import CostTable

    if output_tokens is not None and prices is None:
        raise ArgumentError(
            f"--output-tokens {output_tokens:g} needs --prices to become dollars; give both or"
            " neither."
        )
    if price_unit is not None and prices is None:
        raise ArgumentError(f"--price-unit {price_unit} needs --prices; give both or neither.")
    if not partial:
        check_counted(missing)
    table = CostTable.read(
        source,
        experts=names_in(experts) if isinstance(experts, str) else experts,
        missing=missing,
        answers=answers,
        **(columns or {}),
    )
    print_errors(table.notes)
    if missing != "raise":
        for repair in table.repairs:
            typer.echo(f"repaired: {repair}", err=True)
    return (
        table
        if prices is None
        else table.with_prices(PriceList.read(prices, per=price_unit), output_tokens=output_tokens)
    )


def split_of(table: CostTable, by: str) -> str:
    """Return how to split a table; ``"auto"`` means by its split column if it has one.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> table = CostTable.from_data({"query_id": ["q"], "score:a": [1], "score:b": [0]})
        >>> split_of(table, "auto")
        'random'
    """
    if by != "auto":
        return by
    return "column" if "split" in table.arrow.column_names else "random"


def judge_of(source: str) -> str | None:
    """Return name and version of the judge that scored a table, from ``mildroute collect``.

    Returns ``None`` if the table does not contain them.

    Example:
        >>> judge_of("no/such.parquet") is None
        True
    """
    import pyarrow.parquet as pq

    from mildroute.costs.missing_scores import COLLECTED

    path = Path(source)
    files = (
        [path] if path.suffix == ".parquet" and path.is_file() else sorted(path.glob("*.parquet"))
    )
    written = (pq.read_schema(files[0]).metadata or {}).get(COLLECTED) if files else None
    if written is None:
        return None
    try:
        name, version = json.loads(written)["judge"]
    except (ValueError, LookupError, TypeError) as broken:
        raise TableError(
            f"the metadata key {COLLECTED.decode()!r} must hold JSON with a judge; collect the"
            " table again."
        ) from broken
    return f"judge {name}, version {version}"


def names_in(text: str | None) -> list[str] | None:
    """Return comma-separated names as a list.

    Example:
        >>> names_in("small, large"), names_in(None)
        (['small', 'large'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, for people to read.

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
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    if sys.stdout.isatty():
        Console().print(table)
        return
    # In a file or a pipe, lines need not fit a screen, and trailing blanks are useless.
    console = Console(width=_WIDTH_OF_FILES)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        typer.echo(line.rstrip())


def print_lines(lines: Sequence[Line]) -> None:
    """Print dollars and quality of today's expert, the simplest alternative and the router.

    Example:
        >>> print_lines(())
    """
    if not lines:
        return
    rows = [
        [
            line.role,
            _figure(line.dollars_per_1000, "{:.4g}", "{:.3g}"),
            _figure([100 * end for end in line.saved], "{:.0f}%", "{:.0f}"),
            _figure([100 * end for end in line.kept], "{:.1f}%", "{:.1f}"),
        ]
        for line in lines
    ]
    print_table("", ["", "$ per 1,000", "saved", "best score kept"], rows)
    print_notes([f"{line.role}: {line.words}" for line in lines], mark="")


def _figure(figure: Sequence[float], form: str, end_form: str) -> str:
    """Return a figure with its interval, except for an interval without width."""
    value, low, high = figure
    if math.isnan(value):
        return "unknown"
    # Avoids a negative zero.
    first, last = (end_form.format(end + 0.0 if round(end, 4) else 0.0) for end in (low, high))
    shown = form.format(value if round(value, 4) else 0.0)
    return shown if first == last else f"{shown} [{first}, {last}]"


def print_notes(notes: Sequence[str], mark: str = "-") -> None:
    """Print sentences, one per line.

    Example:
        >>> print_notes(["no dollars"])
        - no dollars
    """
    for note in notes:
        typer.echo(_filled(f"{mark} {note}", sys.stdout))


def _filled(text: str, stream: Any) -> str:
    """Return a sentence wrapped to the screen's width; unchanged in a file or a pipe."""
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
        typer.echo(_filled(f"note: {note}", sys.stderr), err=True)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], None]]:
    """Yield a function that updates a progress bar on the error stream.

    The bar disappears at the end, and is not drawn in a file or a pipe.

    Example:
        >>> with progress_bar("fit") as tell:
        ...     tell(1, 2, "first")
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total, _word: None
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
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[word]}"),
    )
    with Progress(*columns, *times, console=Console(stderr=True), transient=True) as progress:
        # Hidden until the total is known.
        task = progress.add_task("", total=None, visible=False, title=title, word="")
        yield lambda done, total, word: progress.update(
            task, completed=done, total=total, word=word, visible=True
        )
