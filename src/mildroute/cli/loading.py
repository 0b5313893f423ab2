"""Cost tables as the command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["load_table", "names_in"]


def load_table(
    source: str, *, experts: str | None = None, prices: Path | None = None, output_tokens: float | None = None, missing: str = "refuse"
) -> CostTable:
    """Read a table, keep some experts and put dollars to it.

    Args:
        source: Path or URL.
        experts: Names with commas between, or none for all.
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

    table = CostTable.read(source, experts=names_in(experts), missing=missing)
    return table if prices is None else table.with_prices(PriceList.read(prices), output_tokens=output_tokens)


def names_in(text: str | None) -> list[str] | None:
    """Names with commas between as a list.

    Example:
        >>> names_in("small, large"), names_in(None)
        (['small', 'large'], None)
    """
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
