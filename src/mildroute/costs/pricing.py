"""Token or character counts of answers, turned into dollars by a price list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute.costs.columns import DOLLARS, INPUT
from mildroute.costs.prices import PriceList
from mildroute.errors import ArgumentError, TableError

__all__ = ["CHARACTERS_PER_TOKEN", "dollars_of"]

CHARACTERS_PER_TOKEN = 4.0
"""What English text takes with common tokenisers; used only where a table counts characters and not tokens."""


def dollars_of(
    table: pa.Table, experts: tuple[str, ...], prices: PriceList, output_tokens: float | Mapping[str, float] | None = None
) -> dict[str, NDArray[np.float64]]:
    """Dollars of each expert on each row.

    Args:
        table: Canonical columns. What goes in: ``intokens:``, else ``inchars:``, else the length of ``input``. What comes out:
            ``outtokens:``, else ``outchars:``, else ``output_tokens``.
        experts: Names of the experts.
        prices: Has all of them.
        output_tokens: Tokens of an answer where the table counts none; one number, or one for each expert.

    Returns:
        A column ``cost:<expert>`` each, shape (n,).

    Example:
        >>> table = pa.table({"input": ["x" * 40], "outtokens:a": [100.0]})
        >>> dollars_of(table, ("a",), PriceList.of({"a": (1.0, 2.0)}))
        {'cost:a': array([0.00021])}
    """
    missing = [name for name in experts if name not in prices.prices]
    if missing:
        raise TableError(f"the price list has no price for {', '.join(map(repr, missing))}; add them, or keep other experts.")
    return {
        DOLLARS + expert: prices.dollars(expert, _tokens_in(table, expert), _tokens_out(table, expert, output_tokens)) for expert in experts
    }


def _counted(table: pa.Table, expert: str, direction: str) -> NDArray[np.float64] | None:
    if f"{direction}tokens:{expert}" in table.column_names:
        return np.asarray(table.column(f"{direction}tokens:{expert}").to_numpy())
    if f"{direction}chars:{expert}" in table.column_names:
        return np.asarray(table.column(f"{direction}chars:{expert}").to_numpy()) / CHARACTERS_PER_TOKEN
    return None


def _tokens_in(table: pa.Table, expert: str) -> NDArray[np.float64]:
    counted = _counted(table, expert, "in")
    if counted is not None:
        return counted
    if INPUT not in table.column_names:
        raise TableError(f"what goes into {expert!r} is unknown; add 'intokens:{expert}', 'inchars:{expert}' or 'input'.")
    return np.asarray(pc.utf8_length(table.column(INPUT)).to_numpy()) / CHARACTERS_PER_TOKEN


def _tokens_out(table: pa.Table, expert: str, output_tokens: Any) -> NDArray[np.float64]:
    counted = _counted(table, expert, "out")
    if counted is not None:
        return counted
    given = output_tokens.get(expert) if isinstance(output_tokens, Mapping) else output_tokens
    if given is None:
        raise TableError(
            f"what comes out of {expert!r} is unknown; add 'outtokens:{expert}' or 'outchars:{expert}', or give the tokens of an answer "
            "(output_tokens, --output-tokens)."
        )
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not np.isfinite(given) or given < 0:
        raise ArgumentError(f"output_tokens must be finite and not negative, got {given!r} for {expert!r}.")
    return np.full(table.num_rows, float(given))
