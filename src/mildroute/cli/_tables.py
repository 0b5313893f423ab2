"""Read cost tables for commands, and tell the user what was inferred or repaired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mildroute.cli._options import TableOptions
from mildroute.cli._output import print_errors
from mildroute.exceptions import ArgumentError, TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mildroute.costs.table import CostTable


def check_counted(missing: str) -> None:
    """Refuse ``--missing keep``, which only fitting supports."""
    if missing == "keep":
        raise ArgumentError(
            "--missing keep is only for 'mildroute fit' without --hold-out, which estimates the"
            " scores of experts that were not asked; give raise, zero or drop."
        )


def load_table(
    source: str,
    options: TableOptions,
    *,
    experts: Sequence[str] | None = None,
    answers: bool = False,
    partial: bool = False,
) -> CostTable:
    """Read a table, select experts and add dollars.

    Inferred columns and the treatment of missing scores are reported on the error stream.

    Args:
        source: Path or URL.
        options: Columns, prices and the treatment of missing scores.
        experts: Names of the experts to select; ``None`` selects all.
        answers: Whether to read the answers as well.
        partial: Whether scores may be missing because experts were not asked, which allows
            ``missing="keep"``.

    Returns:
        The table.

    Example:
        >>> load_table("no/such.parquet", TableOptions())
        Traceback (most recent call last):
        mildroute.exceptions.TableError: 'no/such.parquet' does not exist; check the path.
    """
    from mildroute.costs.prices import PriceList
    from mildroute.costs.table import CostTable

    options.check_prices()
    if not partial:
        check_counted(options.missing)
    table = CostTable.read(
        source,
        input=options.input_column,
        scores=options.score_columns,
        score_scale=options.scale,
        experts=experts,
        missing=options.missing,
        answers=answers,
    )
    print_errors(table.notes)
    if options.missing != "raise":
        for repair in table.repairs:
            typer.echo(f"repaired: {repair}", err=True)
    if options.prices is None:
        return table
    prices = PriceList.read(options.prices, per=options.price_unit)
    return table.with_prices(prices, output_tokens=options.output_tokens)


def split_of(table: CostTable, by: str) -> str:
    """Return the split method; ``"auto"`` selects the table's split column if it has one.

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
    """Return the name and version of the judge, as ``mildroute collect`` stored them.

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
    metadata = (pq.read_schema(files[0]).metadata or {}).get(COLLECTED) if files else None
    if metadata is None:
        return None
    try:
        name, version = json.loads(metadata)["judge"]
    except (ValueError, LookupError, TypeError) as error:
        raise TableError(
            f"the metadata key {COLLECTED.decode()!r} must hold JSON with a judge; collect the"
            " table again."
        ) from error
    return f"judge {name}, version {version}"


def names_in(text: str | None) -> list[str] | None:
    """Return comma-separated names as a list.

    Example:
        >>> names_in("small, large"), names_in(None)
        (['small', 'large'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
