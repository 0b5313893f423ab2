"""One expert as experts.yaml describes it, before it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute.costs.prices import Price, PriceList
from mildroute.errors import ArgumentError
from mildroute.experts.amounts import checked_amount
from mildroute.experts.shape import nearest

__all__ = ["ExpertSpec", "per_answer_in", "price_in"]


@dataclass(frozen=True)
class ExpertSpec:
    """What a file says of one expert.

    Args:
        name: Its name.
        kind: 'openai', 'classifier', 'recorded', 'people', or the name of an entry point.
        settings: All its other keys, as they were written.
        line: Line of its name.
        path: The file; paths in the settings are relative to its folder.

    Example:
        >>> ExpertSpec("crowd", "people", {"field": "label", "price": {"per_answer": 0.08}}).per_answer
        0.08
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    line: int = 1
    path: Path = Path("experts.yaml")

    @property
    def where(self) -> str:
        """File and line, as messages show them."""
        return f"{self.path.name}:{self.line}"

    @property
    def price(self) -> Price | None:
        """Dollars per million tokens, or none for an expert that is free or paid by the answer."""
        return price_in(self.settings.get("price"))

    @property
    def per_answer(self) -> float | None:
        """Dollars per answer, or none for an expert that is free or paid by the token."""
        return per_answer_in(self.settings.get("price"))


def price_in(written: Any) -> Price | None:
    """A price per million tokens: one number, or a mapping with input and output.

    Example:
        >>> price_in({"input": 0.05, "output": 0.1}), price_in({"per_answer": 1})
        (Price(input=0.05, output=0.1), None)
    """
    if written is None or (isinstance(written, Mapping) and "per_answer" in written):
        return None
    if not isinstance(written, Mapping):
        value = checked_amount("a price in dollars per million tokens", written)
        return Price(value, value)
    _check_keys(written, ("input", "output"))
    price: Price = PriceList.of({"it": {name: checked_amount(f"the {name} price", written[name]) for name in written}}).prices["it"]
    return price


def per_answer_in(written: Any) -> float | None:
    """A price per answer: a mapping with per_answer and nothing else.

    Example:
        >>> per_answer_in({"per_answer": 1}), per_answer_in(0.2)
        (1.0, None)
    """
    if not isinstance(written, Mapping) or "per_answer" not in written:
        return None
    _check_keys(written, ("per_answer",))
    return checked_amount("the price per answer", written["per_answer"])


def _check_keys(written: Mapping[str, Any], keys: tuple[str, ...]) -> None:
    for name in written:
        if name not in keys:
            raise ArgumentError(f"unknown key {name!r:.60} of a price; {nearest(str(name), keys)}")
    for name in keys:
        if name not in written:
            raise ArgumentError(f"a price needs the key {name!r}; add it.")
