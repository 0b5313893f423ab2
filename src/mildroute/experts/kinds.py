"""The kinds of experts that a file may name: which keys each has, and how it is built."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.errors import ArgumentError, TableError
from mildroute.experts.address import checked_base_url
from mildroute.experts.amounts import checked_amount, checked_count
from mildroute.experts.backoff import Backoff
from mildroute.experts.call_settings import CallSettings, Timeouts
from mildroute.experts.import_path import checked_import_path
from mildroute.experts.model_settings import ModelSettings, checked_request
from mildroute.experts.prompt import Prompt
from mildroute.experts.protocol import Expert
from mildroute.experts.secret import Secret, checked_variable
from mildroute.experts.shape import Check, Shape, listed, nearest, text
from mildroute.experts.spec import ExpertSpec, per_answer_in, price_in
from mildroute.experts.template import Template

__all__ = ["CAPABILITIES", "GROUP", "KINDS", "Kind", "build", "known_kinds"]

GROUP = "mildroute.experts"
"""Entry-point group of kinds that other packages bring: callables from settings, with the expert's name among them, to an expert."""

CAPABILITIES = ("json", "tools", "vision")
"""What a model may be able to do besides answering texts; a gateway asks for it."""


@dataclass(frozen=True)
class Kind:
    """One kind of expert.

    Args:
        shape: The keys of its settings.
        build: Makes an expert.

    Example:
        >>> KINDS["people"].shape.required
        ('field',)
    """

    shape: Shape
    build: Callable[[ExpertSpec], Expert]


def build(spec: ExpertSpec) -> Expert:
    """Make the expert that a file describes.

    Keys are read from the environment and files are opened, but no connection is made.

    Args:
        spec: One of a file's experts.

    Returns:
        The expert; close it when you are done.

    Example:
        >>> build(ExpertSpec("crowd", "people", {"field": "label"})).name
        'crowd'
    """
    try:
        expert = KINDS[spec.kind].build(spec) if spec.kind in KINDS else _of_entry_point(spec)
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
    return sorted({*KINDS, *(point.name for point in importlib.metadata.entry_points(group=GROUP))})


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
    from mildroute.experts.endpoint import Endpoint

    variable = spec.settings.get("api_key_env")
    return Endpoint(spec.name, _model(spec.settings), _calls(spec.settings), None if variable is None else Secret(variable))


def _model(settings: Mapping[str, Any]) -> ModelSettings:
    return ModelSettings(
        settings["base_url"],
        settings["model"],
        prompt=Prompt(**settings.get("prompt", {})),
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
    from mildroute.experts.recorded import Recorded

    path = spec.path.parent / Path(spec.settings["path"]).expanduser()
    return Recorded.read(spec.name, path, version=spec.settings.get("version", ""))


def _people(spec: ExpertSpec) -> Expert:
    from mildroute.experts.people import People

    given = {name: spec.settings[name] for name in ("votes", "seed", "version") if name in spec.settings}
    return People(spec.name, spec.settings["field"], dollars=spec.per_answer or 0.0, **given)


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
_PROMPT = Shape({"system": text, "user": Template, "examples": listed(_mapping), "raw": Template}, whole=lambda value: Prompt(**value))
_TIMEOUT = (_seconds, Shape(dict.fromkeys(("total", "connect", "read"), _seconds)))

KINDS: Mapping[str, Kind] = {
    "openai": Kind(
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
    "classifier": Kind(
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
    "recorded": Kind(Shape({"path": text, **_VERSION}, required=("path",)), _recorded),
    "people": Kind(
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
