"""Cost tables as the command line names them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mildroute.errors import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["load_table", "names_in", "split_of"]


def load_table(
    source: str,
    *,
    experts: str | Sequence[str] | None = None,
    prices: Path | None = None,
    output_tokens: float | None = None,
    missing: str = "refuse",
) -> CostTable:
    """Read a table, keep some experts and put dollars to it.

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


def names_in(text: str | None) -> list[str] | None:
    """Names with commas between as a list.

    Example:
        >>> names_in("small, large"), names_in(None)
        (['small', 'large'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
