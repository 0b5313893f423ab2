"""experts.yaml: which experts there are, read and checked as a whole before anything is asked or paid."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.costs.prices import PriceList
from mildroute.errors import ArgumentError
from mildroute.experts.kinds import KINDS, known_kinds
from mildroute.experts.literal_secrets import refuse_literal_secrets
from mildroute.experts.located import Document, read_document
from mildroute.experts.shape import Shape, check_shape, nearest, text
from mildroute.experts.spec import ExpertSpec, per_answer_in, price_in

__all__ = ["ExpertFile", "read_experts"]

_TOP = Shape({"prices_date": text, "experts": lambda value: value, "judges": lambda value: value}, required=("experts",))


@dataclass(frozen=True)
class ExpertFile:
    """The experts of a file.

    Args:
        path: The file.
        experts: In the order of the file.
        prices_date: Date of the prices, as it was written.
        judges: Those who only judge answers of others: they are not asked themselves and never served.

    Example:
        >>> ExpertFile(Path("experts.yaml"), (ExpertSpec("a", "openai", {"price": 2}),), "2026-11-01").prices.date
        '2026-11-01'
    """

    path: Path
    experts: tuple[ExpertSpec, ...]
    prices_date: str | None = None
    judges: tuple[ExpertSpec, ...] = ()

    @property
    def prices(self) -> PriceList | None:
        """Prices per million tokens of those experts that have one; none if nobody has."""
        prices = {spec.name: spec.price for spec in self.experts if spec.price is not None}
        return PriceList(prices, self.prices_date, self.path.name) if prices else None

    def expert(self, name: str) -> ExpertSpec:
        """The expert of that name.

        Example:
            >>> ExpertFile(Path("experts.yaml"), ()).expert("smal")
            Traceback (most recent call last):
            mildroute.errors.ArgumentError: experts.yaml has no expert 'smal'; Known: .
        """
        for spec in self.experts:
            if spec.name == name:
                return spec
        raise ArgumentError(f"{self.path.name} has no expert {name!r:.60}; {nearest(name, [spec.name for spec in self.experts])}")


def read_experts(path: str | Path) -> ExpertFile:
    r"""Read and check a file of experts; nothing is built, imported or asked.

    Every error names file and line. Environment variables are not put in: a key is named by ``api_key_env`` and never written down.

    Args:
        path: The YAML file.

    Returns:
        Its experts; ``build`` makes each of them.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "experts.yaml")
        >>> _ = path.write_text("experts:\n  crowd: {kind: people, field: label, price: {per_answer: 0.08}}\n")
        >>> [(spec.name, spec.line) for spec in read_experts(path).experts]
        [('crowd', 2)]
    """
    path = Path(path)
    document = read_document(path)
    refuse_literal_secrets(document)
    check_shape(document, (), document.value, _TOP)
    experts = _specs(document, "experts", path)
    judges = _specs(document, "judges", path) if "judges" in document.value else ()
    return ExpertFile(path, experts, document.value.get("prices_date"), judges)


def _specs(document: Document, key: str, path: Path) -> tuple[ExpertSpec, ...]:
    named = document.value[key]
    if not isinstance(named, dict) or not named:
        raise document.error((key,), f"{key!r} must name at least one expert; write 'name:' below it, indented, and its keys below that.")
    return tuple(_spec(document, (key, name), value, path) for name, value in named.items())


def _spec(document: Document, place: tuple[str, str], value: Any, path: Path) -> ExpertSpec:
    name = place[1]
    if not name.strip() or name != name.strip() or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name):
        raise document.error(place, f"names of experts must not be empty nor hold line breaks or spaces at their ends, got {name!r:.60}.")
    if not isinstance(value, dict) or "kind" not in value:
        raise document.error(place, f"{name!r:.60} must be a mapping with the key 'kind': {', '.join(known_kinds())}.")
    kind = value["kind"]
    if not isinstance(kind, str) or (kind not in KINDS and kind not in known_kinds()):
        raise document.error((*place, "kind"), f"unknown kind {kind!r:.60}; {nearest(str(kind), known_kinds())}")
    settings = {key: inner for key, inner in value.items() if key != "kind"}
    shape = KINDS[kind].shape if kind in KINDS else Shape(dict.fromkeys(settings, _anything) | {"price": _any_price})
    check_shape(document, place, settings, shape)
    return ExpertSpec(name, kind, settings, document.line(place), path)


def _anything(value: Any) -> None:
    """Settings of a kind that another package brings are its own affair."""


def _any_price(value: Any) -> None:
    if per_answer_in(value) is None:
        price_in(value)
