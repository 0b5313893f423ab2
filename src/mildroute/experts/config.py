"""experts.yaml: the types of experts, what each of them takes, and how they are built."""

from __future__ import annotations

import importlib.metadata
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute._yaml import Check, Shape, YamlDocument, check_shape, checked_amount, checked_count, listed, nearest, read_document, text
from mildroute.costs.prices import Price, PriceList
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.base import Expert
from mildroute.experts.classifier import checked_import_path
from mildroute.experts.prompts import FieldTemplate, PromptTemplate
from mildroute.experts.retry import Backoff
from mildroute.experts.secrets import Secret, checked_variable, refuse_literal_secrets
from mildroute.experts.settings import CallSettings, ModelSettings, Timeouts, checked_base_url, checked_request

__all__ = [
    "CAPABILITIES",
    "EXPERT_TYPES",
    "GROUP",
    "ExpertFile",
    "ExpertSpec",
    "ExpertType",
    "build_expert",
    "known_kinds",
    "per_answer_in",
    "price_in",
    "read_experts",
]


# One expert as experts.yaml describes it, before it is built.


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


# The kinds of experts that a file may name: which keys each has, and how it is built.


GROUP = "mildroute.experts"
"""Entry-point group of kinds that other packages bring: callables from settings, with the expert's name among them, to an expert."""

CAPABILITIES = ("json", "tools", "vision")
"""What a model may be able to do besides answering texts; a gateway asks for it."""


@dataclass(frozen=True)
class ExpertType:
    """One kind of expert.

    Args:
        shape: The keys of its settings.
        build: Makes an expert.

    Example:
        >>> EXPERT_TYPES["people"].shape.required
        ('field',)
    """

    shape: Shape
    build: Callable[[ExpertSpec], Expert]


def build_expert(spec: ExpertSpec) -> Expert:
    """Make the expert that a file describes.

    Keys are read from the environment and files are opened, but no connection is made.

    Args:
        spec: One of a file's experts.

    Returns:
        The expert; close it when you are done.

    Example:
        >>> build_expert(ExpertSpec("crowd", "people", {"field": "label"})).name
        'crowd'
    """
    try:
        expert = EXPERT_TYPES[spec.kind].build(spec) if spec.kind in EXPERT_TYPES else _of_entry_point(spec)
    except (ArgumentError, TableError) as error:
        raise ArgumentError(f"{spec.where}: expert {spec.name!r}: {error}") from error
    if not isinstance(expert, Expert) or expert.name != spec.name:
        raise ArgumentError(f"{spec.where}: the kind {spec.kind!r} must give an Expert called {spec.name!r}, got {expert!r:.80}.")
    return expert


def known_kinds() -> list[str]:
    """Ours and those of installed packages.

    Example:
        >>> "people" in known_kinds()
        True
    """
    return sorted({*EXPERT_TYPES, *(point.name for point in importlib.metadata.entry_points(group=GROUP))})


def _of_entry_point(spec: ExpertSpec) -> Expert:
    points = tuple(importlib.metadata.entry_points(group=GROUP, name=spec.kind))
    if len(points) != 1:
        advice = nearest(spec.kind, known_kinds()) if not points else "uninstall all but one of the packages that bring it."
        raise ArgumentError(f"a kind must be known once, got {spec.kind!r:.60}; {advice}")
    try:
        maker = points[0].load()
    except (ImportError, AttributeError) as error:
        raise ArgumentError(f"the kind {spec.kind!r} cannot be loaded from {points[0].value!r}: {error}.") from error
    expert: Expert = maker({**spec.settings, "name": spec.name})
    return expert


def _endpoint(spec: ExpertSpec) -> Expert:
    from mildroute.experts.openai import OpenAIExpert

    variable = spec.settings.get("api_key_env")
    return OpenAIExpert(spec.name, _model(spec.settings), _calls(spec.settings), None if variable is None else Secret(variable))


def _model(settings: Mapping[str, Any]) -> ModelSettings:
    return ModelSettings(
        settings["base_url"],
        settings["model"],
        prompt=PromptTemplate(**settings.get("prompt", {})),
        request=settings.get("request", {}),
        price=price_in(settings.get("price")),
        context=settings.get("context"),
        version=settings.get("version", ""),
    )


def _calls(settings: Mapping[str, Any]) -> CallSettings:
    return CallSettings(
        concurrency=settings.get("concurrency", 8),
        timeouts=_timeouts(settings.get("timeout", {})),
        backoff=Backoff(retries=settings.get("retries", 4)),
    )


def _timeouts(written: Any) -> Timeouts:
    return Timeouts(**written) if isinstance(written, Mapping) else Timeouts(total=written)


def _classifier(spec: ExpertSpec) -> Expert:
    from mildroute.experts.classifier import Classifier

    given = {name: spec.settings[name] for name in ("arguments", "version", "field", "batch_size", "concurrency") if name in spec.settings}
    return Classifier.from_path(spec.name, spec.settings["import"], dollars=spec.per_answer or 0.0, **given)


def _recorded(spec: ExpertSpec) -> Expert:
    from mildroute.experts.replay import ReplayExpert

    path = spec.path.parent / Path(spec.settings["path"]).expanduser()
    return ReplayExpert.read(spec.name, path, version=spec.settings.get("version", ""))


def _people(spec: ExpertSpec) -> Expert:
    from mildroute.experts.annotators import AnnotatorExpert

    given = {name: spec.settings[name] for name in ("votes", "seed", "version") if name in spec.settings}
    return AnnotatorExpert(spec.name, spec.settings["field"], dollars=spec.per_answer or 0.0, **given)


def _count(name: str, least: int = 1) -> Check:
    return lambda value: checked_count(name, value, least=least)


def _seconds(value: Any) -> float:
    return checked_amount("seconds of a timeout", value, positive=True)


def _one_of(names: tuple[str, ...]) -> Check:
    def check(value: Any) -> None:
        if value not in names:
            raise ArgumentError(f"unknown value {value!r:.60}; {nearest(str(value), names)}")

    return check


def _price_of_tokens(value: Any) -> None:
    if per_answer_in(value) is not None or price_in(value) is None:
        raise ArgumentError("this kind is paid by the token; write {input: ..., output: ...} in dollars per million tokens, or one number.")


def _price_of_answers(value: Any) -> None:
    if per_answer_in(value) is None:
        raise ArgumentError("this kind is paid by the answer; write {per_answer: ...} in dollars.")


def _mapping(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ArgumentError(f"it must be a mapping, got {value!r:.60}; write its keys below it, indented.")


_VERSION: Mapping[str, Check] = {"version": text}
_PROMPT = Shape(
    {"system": text, "user": FieldTemplate, "examples": listed(_mapping), "raw": FieldTemplate}, whole=lambda value: PromptTemplate(**value)
)
_TIMEOUT = (_seconds, Shape(dict.fromkeys(("total", "connect", "read"), _seconds)))

EXPERT_TYPES: Mapping[str, ExpertType] = {
    "openai": ExpertType(
        Shape(
            {
                "base_url": checked_base_url,
                "model": text,
                "api_key_env": checked_variable,
                "price": _price_of_tokens,
                "concurrency": _count("concurrency"),
                "timeout": _TIMEOUT,
                "retries": _count("retries", 0),
                "context": _count("context"),
                "capabilities": listed(_one_of(CAPABILITIES)),
                "prompt": _PROMPT,
                "request": checked_request,
                **_VERSION,
            },
            required=("base_url", "model"),
            whole=lambda value: (_model(value), _calls(value)),
        ),
        _endpoint,
    ),
    "classifier": ExpertType(
        Shape(
            {
                "import": checked_import_path,
                "arguments": _mapping,
                "field": text,
                "price": _price_of_answers,
                "batch_size": _count("batch_size"),
                "concurrency": _count("concurrency"),
                **_VERSION,
            },
            required=("import",),
        ),
        _classifier,
    ),
    "recorded": ExpertType(Shape({"path": text, **_VERSION}, required=("path",)), _recorded),
    "people": ExpertType(
        Shape(
            {
                "field": text,
                "votes": _one_of(("majority", "single")),
                "seed": _count("seed", 0),
                "price": _price_of_answers,
                **_VERSION,
            },
            required=("field",),
        ),
        _people,
    ),
}
"""Kinds of our own, by name."""


# experts.yaml: which experts there are, read and checked as a whole before anything is asked or
# paid.


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
            mildroute.exceptions.ArgumentError: experts.yaml has no expert 'smal'; Known: .
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
        Its experts; ``build_expert`` makes each of them.

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


def _specs(document: YamlDocument, key: str, path: Path) -> tuple[ExpertSpec, ...]:
    named = document.value[key]
    if not isinstance(named, dict) or not named:
        raise document.error((key,), f"{key!r} must name at least one expert; write 'name:' below it, indented, and its keys below that.")
    return tuple(_spec(document, (key, name), value, path) for name, value in named.items())


def _spec(document: YamlDocument, place: tuple[str, str], value: Any, path: Path) -> ExpertSpec:
    name = place[1]
    if not name.strip() or name != name.strip() or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name):
        raise document.error(place, f"names of experts must not be empty nor hold line breaks or spaces at their ends, got {name!r:.60}.")
    if not isinstance(value, dict) or "kind" not in value:
        raise document.error(place, f"{name!r:.60} must be a mapping with the key 'kind': {', '.join(known_kinds())}.")
    kind = value["kind"]
    if not isinstance(kind, str) or (kind not in EXPERT_TYPES and kind not in known_kinds()):
        raise document.error((*place, "kind"), f"unknown kind {kind!r:.60}; {nearest(str(kind), known_kinds())}")
    settings = {key: inner for key, inner in value.items() if key != "kind"}
    shape = EXPERT_TYPES[kind].shape if kind in EXPERT_TYPES else Shape(dict.fromkeys(settings, _anything) | {"price": _any_price})
    check_shape(document, place, settings, shape)
    return ExpertSpec(name, kind, settings, document.line(place), path)


def _anything(value: Any) -> None:
    """Settings of a kind that another package brings are its own affair."""


def _any_price(value: Any) -> None:
    if per_answer_in(value) is None:
        price_in(value)
