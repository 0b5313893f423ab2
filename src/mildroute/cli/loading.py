"""Cost tables as the command line names them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mildroute.errors import ArgumentError, TableError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["judge_of", "load_table", "names_in", "split_of"]


def load_table(
    source: str,
    *,
    experts: str | Sequence[str] | None = None,
    prices: Path | None = None,
    output_tokens: float | None = None,
    missing: str = "refuse",
) -> CostTable:
    """Read a table, keep some experts and put dollars to it; says on the error stream how missing scores were counted.

    Args:
        source: Path or URL.
        experts: Names, in a list or with commas between, or none for all.
        prices: File of list prices, or none.
        output_tokens: Tokens of an answer, where the table has no counts.
        missing: What a missing score means.

    Returns:
        The table.

    Example:
        >>> load_table("no/such.parquet")
        Traceback (most recent call last):
        mildroute.errors.TableError: 'no/such.parquet' does not exist; check the path.
    """
    from mildroute.costs.prices import PriceList
    from mildroute.costs.table import CostTable

    if output_tokens is not None and prices is None:
        raise ArgumentError(f"--output-tokens {output_tokens:g} needs --prices to become dollars; give both or neither.")
    table = CostTable.read(source, experts=names_in(experts) if isinstance(experts, str) else experts, missing=missing)
    if missing != "refuse":
        for repair in table.repairs:
            typer.echo(f"repaired: {repair}", err=True)
    return table if prices is None else table.with_prices(PriceList.read(prices), output_tokens=output_tokens)


def split_of(table: CostTable, by: str) -> str:
    """How to split a table: as told or, for ``"auto"``, by its own column where it has one.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> split_of(CostTable.of({"query_id": ["q"], "score:a": [1], "score:b": [0]}), "auto")
        'random'
    """
    if by != "auto":
        return by
    return "column" if "split" in table.arrow.column_names else "random"


def judge_of(source: str) -> str | None:
    """Name and version of the judge that scored a table, as ``mildroute collect`` wrote them; none where a table does not say.

    Example:
        >>> judge_of("no/such.parquet") is None
        True
    """
    import pyarrow.parquet as pq

    from mildroute.costs.unasked import COLLECTED

    path = Path(source)
    files = [path] if path.suffix == ".parquet" and path.is_file() else sorted(path.glob("*.parquet"))
    written = (pq.read_schema(files[0]).metadata or {}).get(COLLECTED) if files else None
    if written is None:
        return None
    try:
        name, version = json.loads(written)["judge"]
    except (ValueError, LookupError, TypeError) as broken:
        raise TableError(f"the metadata key {COLLECTED.decode()!r} must hold JSON with a judge; collect the table again.") from broken
    return f"judge {name}, version {version}"


def names_in(text: str | None) -> list[str] | None:
    """Names with commas between as a list.

    Example:
        >>> names_in("small, large"), names_in(None)
        (['small', 'large'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
