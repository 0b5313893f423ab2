"""experts.yaml: the types of experts, their settings, and how they are built."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute._checks import nearest, validate_amount, validate_count
from mildroute._optional import load_plugin, plugin_names
from mildroute._shapes import Check, Shape, boolean, check_shape, listed, text
from mildroute._yaml import YamlDocument, read_document
from mildroute.costs.prices import Price, PriceList
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.anthropic import VERSION as ANTHROPIC_VERSION
from mildroute.experts.base import Expert
from mildroute.experts.field_template import FieldTemplate
from mildroute.experts.import_path import validate_import_path
from mildroute.experts.prompts import PromptTemplate
from mildroute.experts.retry import Backoff
from mildroute.experts.secrets import (
    Secret,
    refuse_literal_secrets,
    validate_headers,
    validate_variable,
)
from mildroute.experts.settings import (
    AnthropicSettings,
    CallSettings,
    ModelSettings,
    Timeouts,
    validate_base_url,
    validate_params,
    validate_query,
    validate_request,
)

__all__ = [
    "CAPABILITIES",
    "EXPERT_TYPES",
    "GROUP",
    "ExpertFile",
    "ExpertSpec",
    "ExpertType",
    "anthropic_headers",
    "build_expert",
    "expert_kinds",
    "per_answer_in",
    "price_in",
    "read_experts",
]


# One expert as experts.yaml describes it, before it is built.


@dataclass(frozen=True)
class ExpertSpec:
    """The entry of one expert in a file.

    Args:
        name: Its name.
        kind: 'openai', 'anthropic', 'litellm', 'classifier', 'recorded', 'people', or the name of
            an entry point.
        settings: All its other keys, as written.
        line: Line of its name.
        path: The file; paths in the settings are relative to its folder.

    Example:
        >>> settings = {"field": "label", "price": {"per_answer": 0.08}}
        >>> ExpertSpec("crowd", "people", settings).per_answer
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
        """Dollars per million tokens, or none for an expert that is free or paid per answer."""
        return price_in(self.settings.get("price"))

    @property
    def per_answer(self) -> float | None:
        """Dollars per answer, or none for an expert that is free or paid per token."""
        return per_answer_in(self.settings.get("price"))


def price_in(written: Any) -> Price | None:
    """A price per million tokens.

    One number, or a mapping with input and output, and optionally cached_input and cache_write.
    """
    if written is None or (isinstance(written, Mapping) and "per_answer" in written):
        return None
    if not isinstance(written, Mapping):
        value = validate_amount("a price in dollars per million tokens", written)
        return Price(value, value)
    _check_keys(written, ("input", "output"), ("cached_input", "cache_write"))
    return Price(**{name: validate_amount(f"the {name} price", written[name]) for name in written})


def per_answer_in(written: Any) -> float | None:
    """A price per answer: a mapping with per_answer and nothing else."""
    if not isinstance(written, Mapping) or "per_answer" not in written:
        return None
    _check_keys(written, ("per_answer",))
    return validate_amount("the price per answer", written["per_answer"])


def _check_keys(
    written: Mapping[str, Any], keys: tuple[str, ...], optional: tuple[str, ...] = ()
) -> None:
    for name in written:
        if name not in keys + optional:
            hint = nearest(str(name), keys + optional)
            raise ArgumentError(f"unknown key {name!r:.60} of a price; {hint}")
    for name in keys:
        if name not in written:
            raise ArgumentError(f"a price needs the key {name!r}; add it.")


# The kinds of experts that a file may name: which keys each has, and how it is built.


# Entry-point group of kinds that other packages bring: callables from settings, with the expert's
# name among them, to an expert.
GROUP = "mildroute.experts"

# What a model may be able to do in addition to answering texts; a gateway checks it.
CAPABILITIES = ("json", "tools", "vision")


@dataclass(frozen=True)
class ExpertType:
    """One kind of expert."""

    shape: Shape
    build: Callable[[ExpertSpec], Expert]


def build_expert(spec: ExpertSpec) -> Expert:
    """Build the expert that a file describes.

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
        expert = (
            EXPERT_TYPES[spec.kind].build(spec)
            if spec.kind in EXPERT_TYPES
            else _of_entry_point(spec)
        )
    except (ArgumentError, TableError) as error:
        raise ArgumentError(f"{spec.where}: expert {spec.name!r}: {error}") from error
    if not isinstance(expert, Expert) or expert.name != spec.name:
        raise ArgumentError(
            f"{spec.where}: the kind {spec.kind!r} must give an Expert called {spec.name!r}, got"
            f" {expert!r:.80}."
        )
    return expert


def expert_kinds() -> list[str]:
    """Return the built-in kinds and those of installed packages."""
    return sorted({*EXPERT_TYPES, *plugin_names(GROUP)})


def _of_entry_point(spec: ExpertSpec) -> Expert:
    maker = load_plugin(GROUP, spec.kind, thing="kind of expert", known=EXPERT_TYPES)
    expert: Expert = maker({**spec.settings, "name": spec.name})
    return expert


def _endpoint(spec: ExpertSpec) -> Expert:
    from mildroute.experts.openai import OpenAIExpert

    variable = spec.settings.get("api_key_env")
    return OpenAIExpert(
        spec.name,
        _model(spec.settings),
        _calls(spec.settings),
        None if variable is None else Secret(variable),
        headers=spec.settings.get("headers"),
    )


def _litellm(spec: ExpertSpec) -> Expert:
    from mildroute.experts.litellm import LiteLLMModel
    from mildroute.experts.litellm_expert import LiteLLMExpert

    calls = _calls(spec.settings)
    sdk_model = LiteLLMModel(spec.settings, calls.timeouts.total)
    return LiteLLMExpert(spec.name, _model(spec.settings), sdk_model, calls)


def _anthropic(spec: ExpertSpec) -> Expert:
    from mildroute.experts.openai import OpenAIExpert

    model = AnthropicSettings(
        **_model_arguments(spec.settings), sampling=spec.settings.get("sampling", True)
    )
    return OpenAIExpert(
        spec.name, model, _calls(spec.settings), headers=anthropic_headers(spec.settings)
    )


def anthropic_headers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers of every request to Anthropic's API: version, key, and those of a file.

    Example:
        >>> anthropic_headers({"api_key_env": "CLAUDE_KEY"})
        {'anthropic-version': '2023-06-01', 'x-api-key': {'env': 'CLAUDE_KEY'}}
    """
    found: dict[str, Any] = {"anthropic-version": ANTHROPIC_VERSION}
    if settings.get("api_key_env") is not None:
        found["x-api-key"] = {"env": settings["api_key_env"]}
    # Names of headers are the same in any case.
    return found | {name.lower(): value for name, value in settings.get("headers", {}).items()}


def _model(settings: Mapping[str, Any]) -> ModelSettings:
    return ModelSettings(**_model_arguments(settings), logprobs=settings.get("logprobs", False))


def _model_arguments(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "base_url": settings.get("base_url"),
        "model": settings["model"],
        "prompt": PromptTemplate(**settings.get("prompt", {})),
        "request": settings.get("request", {}),
        "price": price_in(settings.get("price")),
        "context": settings.get("context"),
        "version": settings.get("version", ""),
        "query": settings.get("query", {}),
    }


def _calls(settings: Mapping[str, Any]) -> CallSettings:
    return CallSettings(
        concurrency=settings.get("concurrency", 8),
        timeouts=_timeouts(settings.get("timeout", {})),
        backoff=Backoff(retries=settings.get("retries", 4)),
    )


def _timeouts(written: Any) -> Timeouts:
    return Timeouts(**written) if isinstance(written, Mapping) else Timeouts(total=written)


def _classifier(spec: ExpertSpec) -> Expert:
    from mildroute.experts.classifier import ClassifierExpert

    given = _given(spec, "arguments", "version", "field", "batch_size", "concurrency")
    return ClassifierExpert.from_path(spec.name, spec.settings["import"], **given)


def _recorded(spec: ExpertSpec) -> Expert:
    from mildroute.experts.replay import ReplayExpert

    path = spec.path.parent / Path(spec.settings["path"]).expanduser()
    return ReplayExpert.read(spec.name, path, version=spec.settings.get("version", ""))


def _people(spec: ExpertSpec) -> Expert:
    from mildroute.experts.annotators import AnnotatorExpert

    return AnnotatorExpert(spec.name, **_given(spec, "field", "votes", "seed", "version"))


def _given(spec: ExpertSpec, *names: str) -> dict[str, Any]:
    """Return the settings of these names that the file has, and the price of an answer."""
    written = {name: spec.settings[name] for name in names if name in spec.settings}
    return {"dollars": spec.per_answer or 0.0, **written}


def _count(name: str, least: int = 1) -> Check:
    return lambda value: validate_count(name, value, minimum=least)


def _seconds(value: Any) -> float:
    return validate_amount("seconds of a timeout", value, positive=True)


def _one_of(names: tuple[str, ...]) -> Check:
    def check(value: Any) -> None:
        if value not in names:
            raise ArgumentError(f"unknown value {value!r:.60}; {nearest(str(value), names)}")

    return check


def _price_of_tokens(value: Any) -> None:
    if per_answer_in(value) is not None or price_in(value) is None:
        raise ArgumentError(
            "this kind is paid by the token; write {input: ..., output: ...} in dollars per million"
            " tokens, or one number."
        )


def _price_of_answers(value: Any) -> None:
    if per_answer_in(value) is None:
        raise ArgumentError("this kind is paid by the answer; write {per_answer: ...} in dollars.")


def _mapping(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise ArgumentError(
            f"it must be a mapping, got {value!r:.60}; write its keys below it, indented."
        )


def _check_endpoint(settings: Mapping[str, Any]) -> None:
    """Check what two keys say together."""
    _model(settings)
    _calls(settings)
    validate_headers(settings.get("headers", {}), has_key="api_key_env" in settings)


def _check_anthropic(settings: Mapping[str, Any]) -> None:
    """Check what two keys say together."""
    AnthropicSettings(**_model_arguments(settings))
    _calls(settings)
    headers = validate_headers(settings.get("headers", {}))
    if "api_key_env" in settings and "x-api-key" in map(str.lower, headers):
        raise ArgumentError(
            "headers must not hold 'x-api-key' beside api_key_env, which sets it; leave one of them"
            " out."
        )


_VERSION: Mapping[str, Check] = {"version": text}
_PROMPT = Shape(
    {"system": text, "user": FieldTemplate, "examples": listed(_mapping), "raw": FieldTemplate},
    whole=lambda value: PromptTemplate(**value),
)
_TIMEOUT = (_seconds, Shape(dict.fromkeys(("total", "connect", "read"), _seconds)))

_OPENAI: Mapping[str, Any] = {"include_usage": boolean, "logprobs": boolean}
# Settings of a language model of any kind.
_LANGUAGE_MODEL: Mapping[str, Any] = {
    "base_url": validate_base_url,
    "model": text,
    "api_key_env": validate_variable,
    "price": _price_of_tokens,
    "concurrency": _count("concurrency"),
    "timeout": _TIMEOUT,
    "retries": _count("retries", 0),
    "context": _count("context"),
    "capabilities": listed(_one_of(CAPABILITIES)),
    "prompt": _PROMPT,
    "request": validate_request,
    "headers": validate_headers,
    **_VERSION,
}

# Kinds of our own, by name.
EXPERT_TYPES: Mapping[str, ExpertType] = {
    "openai": ExpertType(
        Shape(
            {**_LANGUAGE_MODEL, **_OPENAI, "query": validate_query},
            required=("base_url", "model"),
            whole=_check_endpoint,
        ),
        _endpoint,
    ),
    "anthropic": ExpertType(
        Shape(
            {**_LANGUAGE_MODEL, "query": validate_query, "sampling": boolean},
            required=("base_url", "model"),
            whole=_check_anthropic,
        ),
        _anthropic,
    ),
    "litellm": ExpertType(
        Shape(
            {**_LANGUAGE_MODEL, **_OPENAI, "params": validate_params},
            required=("model",),
            whole=_check_endpoint,
        ),
        _litellm,
    ),
    "classifier": ExpertType(
        Shape(
            {
                "import": validate_import_path,
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


# experts.yaml: which experts there are, read and checked as a whole before any call is made or
# paid.


_TOP = Shape(
    {
        "prices_date": text,
        "baseline": text,
        "experts": lambda value: value,
        "judges": lambda value: value,
    },
    required=("experts",),
)


@dataclass(frozen=True)
class ExpertFile:
    """The experts of a file.

    Args:
        path: The file.
        experts: In the order of the file.
        prices_date: Date of the prices, as written.
        judges: Experts that only judge answers: they get no queries and are never served.
        baseline: Expert whose bill is paid today, against which savings are measured, or `None`.

    Example:
        >>> experts = (ExpertSpec("a", "openai", {"price": 2}),)
        >>> ExpertFile(Path("experts.yaml"), experts, "2026-11-01").prices.date
        '2026-11-01'
    """

    path: Path
    experts: tuple[ExpertSpec, ...]
    prices_date: str | None = None
    judges: tuple[ExpertSpec, ...] = ()
    baseline: str | None = None

    @property
    def prices(self) -> PriceList | None:
        """Prices per million tokens of those experts that have one; none if no expert has one."""
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
        raise ArgumentError(
            f"{self.path.name} has no expert {name!r:.60};"
            f" {nearest(name, [spec.name for spec in self.experts])}"
        )


def read_experts(path: str | Path) -> ExpertFile:
    r"""Read and check a file of experts; nothing is built, imported or called.

    Every error names file and line. Environment variables are not substituted: ``api_key_env``
    names a key, which is never stored.

    Args:
        path: The YAML file.

    Returns:
        Its experts; ``build_expert`` builds each of them.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "experts.yaml")
        >>> crowd = "{kind: people, field: label, price: {per_answer: 0.08}}"
        >>> _ = path.write_text(f"experts:\n  crowd: {crowd}\n")
        >>> [(spec.name, spec.line) for spec in read_experts(path).experts]
        [('crowd', 2)]
    """
    path = Path(path)
    document = read_document(path)
    refuse_literal_secrets(document)
    check_shape(document, (), document.value, _TOP)
    experts = _specs(document, "experts", path)
    judges = _specs(document, "judges", path) if "judges" in document.value else ()
    baseline = document.value.get("baseline")
    found = ExpertFile(path, experts, document.value.get("prices_date"), judges, baseline)
    if baseline is not None:
        try:
            found.expert(baseline)
        except ArgumentError as error:
            raise document.error(("baseline",), f"'baseline': {error}") from None
    return found


def _specs(document: YamlDocument, key: str, path: Path) -> tuple[ExpertSpec, ...]:
    named = document.value[key]
    if not isinstance(named, dict) or not named:
        raise document.error(
            (key,),
            f"{key!r} must name at least one expert; write 'name:' below it, indented, and its keys"
            " below that.",
        )
    return tuple(_spec(document, (key, name), value, path) for name, value in named.items())


def _spec(document: YamlDocument, place: tuple[str, str], value: Any, path: Path) -> ExpertSpec:
    name = place[1]
    if (
        not name.strip()
        or name != name.strip()
        or any(unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"} for letter in name)
    ):
        raise document.error(
            place,
            "names of experts must not be empty nor hold line breaks or spaces at their ends, got"
            f" {name!r:.60}.",
        )
    if not isinstance(value, dict) or "kind" not in value:
        raise document.error(
            place,
            f"{name!r:.60} must be a mapping with the key 'kind': {', '.join(expert_kinds())}.",
        )
    kind = value["kind"]
    if not isinstance(kind, str) or (kind not in EXPERT_TYPES and kind not in expert_kinds()):
        raise document.error(
            (*place, "kind"), f"unknown kind {kind!r:.60}; {nearest(str(kind), expert_kinds())}"
        )
    settings = {key: inner for key, inner in value.items() if key != "kind"}
    shape = (
        EXPERT_TYPES[kind].shape
        if kind in EXPERT_TYPES
        # Settings of a plug-in's kind are its own affair, except for the price.
        else Shape(
            dict.fromkeys(settings, lambda _: None)
            | {"price": lambda price: per_answer_in(price) or price_in(price)}
        )
    )
    check_shape(document, place, settings, shape)
    return ExpertSpec(name, kind, settings, document.line(place), path)
