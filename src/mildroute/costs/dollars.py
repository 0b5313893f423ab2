"""Dollars of calls, from counts of tokens or characters and list prices, or from call prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mildroute.costs.prices import CHARACTERS_PER_TOKEN, PriceList
from mildroute.costs.schema import COUNTS, DOLLARS, INPUT, LATENCY
from mildroute.costs.validation import check_dollars
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "call_dollars",
    "dollars_of",
    "names_columns",
    "per_call",
    "with_dollars",
]


def dollars_of(
    table: pa.Table,
    experts: tuple[str, ...],
    prices: PriceList,
    output_tokens: float | Mapping[str, float] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Return the dollars of each expert on each row.

    Args:
        table: Canonical columns. Input is counted by the first of ``intokens:``, ``inchars:`` and
            the length of ``input`` that is available, and output by the first of ``outtokens:``,
            ``outchars:`` and ``output_tokens``.
        experts: Names of the experts.
        prices: Prices of all experts.
        output_tokens: Tokens of an answer if the table has no counts; one number, or one for each
            expert.

    Returns:
        A column ``cost:<expert>`` for each expert, shape (n,).
    """
    _check_priced(experts, prices.prices)
    return {
        DOLLARS + expert: check_dollars(
            prices.dollars(
                expert, _tokens_in(table, expert), _tokens_out(table, expert, output_tokens)
            ),
            expert,
        )
        for expert in experts
    }


def with_dollars(table: pa.Table, dollars: Mapping[str, NDArray[np.float64]]) -> pa.Table:
    """Return canonical columns in which the given dollars replace any existing ones."""
    others = [name for name in table.column_names if not name.startswith(DOLLARS)]
    after = [name for name in others if name.startswith((LATENCY, *COUNTS))]
    before = [name for name in others if name not in after]
    columns = {name: table.column(name) for name in before} | dict(dollars)
    return pa.table(columns | {name: table.column(name) for name in after})


def _counted(table: pa.Table, expert: str, direction: str) -> NDArray[np.float64] | None:
    if f"{direction}tokens:{expert}" in table.column_names:
        return np.asarray(table.column(f"{direction}tokens:{expert}").to_numpy())
    if f"{direction}chars:{expert}" in table.column_names:
        return (
            np.asarray(table.column(f"{direction}chars:{expert}").to_numpy()) / CHARACTERS_PER_TOKEN
        )
    return None


def _tokens_in(table: pa.Table, expert: str) -> NDArray[np.float64]:
    counted = _counted(table, expert, "in")
    if counted is not None:
        return counted
    if INPUT not in table.column_names:
        raise TableError(
            f"the length of the input to {expert!r} is unknown; add 'intokens:{expert}',"
            f" 'inchars:{expert}' or 'input'."
        )
    return np.asarray(pc.utf8_length(table.column(INPUT)).to_numpy()) / CHARACTERS_PER_TOKEN


def _tokens_out(
    table: pa.Table, expert: str, output_tokens: float | Mapping[str, float] | None
) -> NDArray[np.float64]:
    counted = _counted(table, expert, "out")
    if counted is not None:
        return counted
    tokens = output_tokens.get(expert) if isinstance(output_tokens, Mapping) else output_tokens
    if tokens is None:
        raise TableError(
            f"the length of the answers of {expert!r} is unknown; add 'outtokens:{expert}' or"
            f" 'outchars:{expert}', or give the tokens of an answer (output_tokens,"
            " --output-tokens), or prices per call."
        )
    if (
        isinstance(tokens, bool)
        or not isinstance(tokens, (int, float))
        or not np.isfinite(tokens)
        or tokens < 0
    ):
        raise ArgumentError(
            f"output_tokens must be finite and not negative, got {tokens!r} for {expert!r}."
        )
    return np.full(table.num_rows, float(tokens))


def names_columns(prices: object) -> TypeGuard[Mapping[str, str]]:
    """Return whether prices are the names of columns, one for each expert."""
    return (
        isinstance(prices, Mapping)
        and bool(prices)
        and all(isinstance(price, str) for price in prices.values())
    )


def per_call(prices: object) -> TypeGuard[Mapping[str, float]]:
    """Return whether prices are one number per expert rather than a list of prices per token."""
    return isinstance(prices, Mapping) and all(
        isinstance(price, (int, float, np.number)) for price in prices.values()
    )


def call_dollars(
    prices: object, experts: Sequence[str], rows: int
) -> dict[str, NDArray[np.float64]]:
    """Return columns ``cost:<expert>`` with the same price for every call, shape (n,) each."""
    if not per_call(prices):
        raise TableError(
            "prices per call are one number of dollars for each expert, got"
            f" {prices if isinstance(prices, Mapping) else type(prices).__name__!r:.80}."
        )
    _check_priced(experts, prices)
    return {
        DOLLARS + name: check_dollars(np.full(rows, float(prices[name])), name) for name in experts
    }


def _check_priced(experts: Sequence[str], prices: Mapping[str, Any]) -> None:
    missing = [name for name in experts if name not in prices]
    if missing:
        raise TableError(
            f"the price list has no price for {', '.join(map(repr, missing))}, only for"
            f" {', '.join(map(repr, prices))}; add them, or keep other experts."
        )
