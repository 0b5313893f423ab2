"""List prices of experts: dollars per million tokens, with their date and source."""

from __future__ import annotations

import contextlib
import csv
import importlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError, TableError

__all__ = [
    "CHARACTERS_PER_TOKEN",
    "METADATA_KEY",
    "Price",
    "PriceList",
    "metadata_of",
    "prices_in",
]

METADATA_KEY = b"mildroute"
_MILLION = 1_000_000
# Characters per token of English text with common tokenizers; used only if nothing counted tokens.
CHARACTERS_PER_TOKEN = 4
# Numbers of tokens that prices may be for, with the words for them in column names.
_UNITS = {"1M": 1.0, "1K": 1000.0, "token": 1e6}
_UNIT_WORDS = {"1m": "1M", "million": "1M", "mtok": "1M", "1k": "1K", "thousand": "1K"}
_UNIT_WORDS |= {"1000": "1K", "ktok": "1K", "1000000": "1M", "token": "token"}
_DIRECTIONS = {"input": "input", "prompt": "input", "output": "output", "completion": "output"}


@dataclass(frozen=True)
class Price:
    """The dollars per million input and output tokens.

    Args:
        input: Price of input tokens.
        output: Price of output tokens.
        cached_input: Price of input tokens read from the provider's prompt cache; `None` if they
            cost as much as other input.
        cache_write: Price of input tokens written to the provider's prompt cache; `None` if they
            cost as much as other input.

    Example:
        >>> Price(0.5, 1.5).output
        1.5
    """

    input: float
    output: float
    cached_input: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        """Check the prices."""
        for value in (self.input, self.output, self.cached_input or 0.0, self.cache_write or 0.0):
            if (
                isinstance(value, bool)
                or not isinstance(value, (int, float))
                or not math.isfinite(value)
                or value < 0
            ):
                raise TableError(
                    f"a price must be a finite number of dollars, not negative, got {value!r}; give"
                    " dollars per million tokens."
                )

    def times(self, factor: float) -> Price:
        """Return the prices multiplied by a factor."""
        if factor == 1:
            return self
        cached = None if self.cached_input is None else factor * self.cached_input
        written = None if self.cache_write is None else factor * self.cache_write
        return Price(factor * self.input, factor * self.output, cached, written)

    def cost(
        self, tokens_in: Any, tokens_out: Any, cached_tokens: Any = 0, written_tokens: Any = 0
    ) -> Any:
        """Return the dollars of calls with these token counts, numbers or arrays.

        Args:
            tokens_in: Tokens of requests.
            tokens_out: Tokens of responses.
            cached_tokens: Request tokens that were read from the prompt cache.
            written_tokens: Request tokens that were written to the prompt cache.

        Example:
            >>> Price(1, 2).cost(1000, 500)
            0.002
            >>> Price(1, 2, cached_input=0.1).cost(1000, 0, cached_tokens=1000)
            0.0001
        """
        cached = self.input if self.cached_input is None else self.cached_input
        full = self.input * (tokens_in - cached_tokens) + self.output * tokens_out
        if self.cache_write is not None:
            full = full + (self.cache_write - self.input) * written_tokens
        return (full + cached * cached_tokens) / _MILLION


@dataclass(frozen=True)
class PriceList:
    """The prices of experts on a date, with their source.

    Attributes:
        prices: Price of each expert.
        date: Date of the prices, as an ISO date or other text.
        source: Publisher of the prices.

    Example:
        >>> prices = {"small": 0.2, "large": {"input": 5, "output": 15}}
        >>> PriceList.of(prices, date="2024-06-01").prices["large"].output
        15.0
    """

    prices: Mapping[str, Price]
    date: str | None = None
    source: str | None = None

    @classmethod
    def of(
        cls,
        prices: Mapping[str, Any],
        *,
        date: str | None = None,
        source: str | None = None,
        per: str = "1M",
    ) -> PriceList:
        """Build a price list from a mapping.

        Each price is one number for both directions, a pair (input, output), or a mapping with
        those keys. Prices are per million tokens ('1M'), per thousand ('1K') or per 'token'.

        Example:
            >>> PriceList.of({"a": (1, 2)}).prices["a"]
            Price(input=1.0, output=2.0, cached_input=None, cache_write=None)
        """
        if not isinstance(prices, Mapping) or not prices:
            raise TableError(
                "prices must be a non-empty mapping from expert to price, got"
                f" {type(prices).__name__}."
            )
        factor = _factor(per)
        price_of = {str(name): _to_price(name, value) for name, value in prices.items()}
        return cls({name: price.times(factor) for name, price in price_of.items()}, date, source)

    @classmethod
    def from_any(cls, prices: Any, *, per: str = "1M") -> PriceList:
        """Return a price list unchanged, or build one from a file or from an argument of ``of``.

        Example:
            >>> PriceList.from_any({"a": 0.002}, per="1K").prices["a"].input
            2.0
        """
        if isinstance(prices, PriceList):
            return prices
        if isinstance(prices, (str, Path)):
            return cls.read(prices, per=None if per == "1M" else per)
        return cls.of(prices, per=per)

    @classmethod
    def read(cls, path: str | Path, *, per: str | None = None) -> PriceList:
        """Read prices from a JSON, CSV or TSV file.

        JSON has the form of ``as_dict``, or is a bare mapping; CSV has the columns expert (or
        model), input and output, or names such as 'Input price per 1K tokens'.

        Args:
            path: The file.
            per: Number of tokens that the prices are for: '1M', '1K' or one 'token'. Defaults to
                the unit in the column names, or else to a million.

        Example:
            >>> PriceList.read("prices.txt")
            Traceback (most recent call last):
            mildroute.exceptions.TableError: prices are read from .json, .csv or .tsv files, got ...
        """
        path = Path(path)
        if path.suffix.lower() not in {".json", ".csv", ".tsv"}:
            raise TableError(f"prices are read from .json, .csv or .tsv files, got {str(path)!r}.")
        try:
            text = path.read_text(encoding="utf-8-sig")
            if path.suffix.lower() == ".json":
                return _price_list_from_json(json.loads(text), per or "1M")
            return _price_list_from_csv(text, per)
        except (
            OSError,
            UnicodeDecodeError,
            json.JSONDecodeError,
            RecursionError,
            csv.Error,
        ) as error:
            raise TableError(
                f"prices cannot be read from {str(path)!r}:"
                f" {getattr(error, 'strerror', None) or ' '.join(str(error).split())}; check the"
                " path, and that it is JSON, or CSV with a row for each expert."
            ) from error

    @classmethod
    def from_litellm(cls, names: Sequence[str] | Mapping[str, str]) -> PriceList:
        """Build a price list from LiteLLM's public price map; requires that package.

        Args:
            names: Names in LiteLLM's map, or a mapping from your experts' names to them.

        Returns:
            The prices, dated with the package's version.
        """
        with needs_extra("litellm", extra="litellm", user="PriceList.from_litellm"):
            litellm = importlib.import_module("litellm")
        model_prices: Mapping[str, Any] = litellm.model_cost
        litellm_names = (
            dict(names) if isinstance(names, Mapping) else {name: name for name in names}
        )
        unknown = [
            name
            for name in litellm_names.values()
            if "input_cost_per_token" not in model_prices.get(name, {})
        ]
        if unknown:
            raise TableError(
                f"LiteLLM's price map has no price per token for {', '.join(map(repr, unknown))};"
                " give prices by hand."
            )
        version = getattr(litellm, "__version__", None)
        return cls(
            {
                expert: _price_from_litellm(model_prices[name])
                for expert, name in litellm_names.items()
            },
            date=None,
            source="litellm" if version is None else f"litellm {version}",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the prices as JSON-serializable values.

        Example:
            >>> PriceList.of({"a": 1}).as_dict()
            {'date': None, 'source': None, 'prices': {'a': {'input': 1.0, 'output': 1.0}}}
        """
        prices = {
            name: {field: value for field, value in asdict(price).items() if value is not None}
            for name, price in self.prices.items()
        }
        return {"date": self.date, "source": self.source, "prices": prices}

    def dollars(self, expert: str, tokens_in: Any, tokens_out: Any) -> Any:
        """Return the dollars of calls with these token counts, numbers or arrays.

        Example:
            >>> PriceList.of({"a": (1, 2)}).dollars("a", 1000, 500)
            0.002
        """
        return self.prices[expert].cost(tokens_in, tokens_out)


def metadata_of(prices: PriceList | None) -> dict[bytes, bytes]:
    """Return prices in the form that Parquet stores alongside the schema."""
    return (
        {}
        if prices is None
        else {
            METADATA_KEY: (
                json.dumps({"version": 1, "prices": prices.as_dict()}, sort_keys=True).encode()
            )
        }
    )


def prices_in(metadata: Mapping[bytes, bytes]) -> PriceList | None:
    """Return the prices stored alongside a schema, or `None`."""
    if METADATA_KEY not in metadata:
        return None
    try:
        stored = json.loads(metadata[METADATA_KEY])["prices"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TableError(
            f"the metadata key {METADATA_KEY.decode()!r} must hold JSON with prices; remove the key"
            " or write it again."
        ) from error
    return _price_list_from_json(stored)


def _to_price(name: object, value: Any) -> Price:
    if isinstance(value, Price):
        return value
    cached = None
    if isinstance(value, Mapping) and {"input", "output"} <= value.keys():
        cached = value.get("cached_input") or None
        value = (value["input"], value["output"])
    pair = tuple(value) if isinstance(value, (list, tuple)) else (value, value)
    if len(pair) != 2:
        raise TableError(
            f"the price of {name!r} must be one number, (input, output) or a mapping with these"
            f" keys and perhaps cached_input, got {value!r}."
        )
    try:
        return Price(float(pair[0]), float(pair[1]), None if cached is None else float(cached))
    except (TypeError, ValueError) as error:
        if isinstance(error, TableError):
            raise TableError(f"the price of {name!r}: {error}") from None
        raise TableError(
            f"the price of {name!r} must be a number of dollars, got {value!r}; give one, or the"
            " name of a column where a table is read."
        ) from None


def _price_from_litellm(entry: Mapping[str, Any]) -> Price:
    cached = entry.get("cache_read_input_token_cost")
    return Price(
        entry["input_cost_per_token"] * _MILLION,
        (entry.get("output_cost_per_token") or 0.0) * _MILLION,
        None if cached is None else cached * _MILLION,
    )


def _price_list_from_json(document: Any, per: str = "1M") -> PriceList:
    if not isinstance(document, Mapping):
        raise TableError(f"prices must be a JSON object, got {type(document).__name__}.")
    if "prices" not in document:
        return PriceList.of(document, per=per)
    return PriceList.of(
        document["prices"], per=per, date=document.get("date"), source=document.get("source")
    )


def _factor(per: str) -> float:
    if per not in _UNITS:
        raise ArgumentError(f"per must be '1M', '1K' or 'token', got {per!r}.")
    return _UNITS[per]


def _price_list_from_csv(text: str, per: str | None = None) -> PriceList:
    """Read columns expert, input, output and optional cached_input, date and source.

    Date and source are the same on every row.
    """
    from mildroute.costs.schema import listed

    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    roles, unit = _price_columns(reader.fieldnames or [])
    rows = [{roles.get(name, name): cell for name, cell in row.items()} for row in reader]
    if not rows or not {"expert", "input", "output"} <= rows[0].keys():
        raise TableError(
            "a CSV of prices needs the columns expert (or model), input and output, and at least"
            f" one row, got the columns {listed(reader.fieldnames or [])}."
        )
    experts = [row["expert"] for row in rows]
    if len(set(experts)) < len(experts):
        raise TableError(
            "a CSV of prices has one row for each expert, got one of them twice; keep one."
        )
    prices = {row["expert"]: _parse_prices(row, delimiter) for row in rows}
    return PriceList.of(
        prices,
        per=per or unit,
        date=rows[0].get("date") or None,
        source=rows[0].get("source") or None,
    )


def _price_columns(names: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the role of each column of a price list, and the tokens that its prices are for."""
    from mildroute.costs.schema import listed

    roles: dict[str, str] = {}
    units: set[str] = set()
    for name in names:
        words = re.findall(r"[^\W_]+", name.casefold())
        direction = next((_DIRECTIONS[word] for word in words if word in _DIRECTIONS), None)
        if name.strip().casefold() in ("expert", "model", "llm", "model_name", "name"):
            roles[name] = "expert"
        elif direction is not None:
            is_cached = {"cached", "cache"} & set(words)
            roles[name] = "cached_input" if is_cached else direction
            units |= {_UNIT_WORDS[word] for word in words if word in _UNIT_WORDS}
        else:
            roles[name] = name.strip().casefold()
    if len(units) > 1:
        raise TableError(
            f"all prices must be for the same number of tokens, got the columns {listed(names)};"
            " convert some of them."
        )
    return roles, units.pop() if units else "1M"


def _parse_prices(row: Mapping[str, Any], delimiter: str) -> dict[str, Any]:
    """Return a row with its prices as numbers; other cells are left for the error message."""
    # Imported here, because Arrow is heavy and clients of models need only the prices.
    from mildroute.costs.conversion import parse_number
    from mildroute.costs.schema import DOLLARS

    parsed = dict(row)
    for name in ("input", "output", "cached_input"):
        cell = (row.get(name) or "").strip().lower()
        decimal = "," if delimiter != "," and "," in cell else "."
        with contextlib.suppress(ValueError):
            parsed[name] = parse_number(cell, DOLLARS, decimal) if cell else row.get(name)
    return parsed
