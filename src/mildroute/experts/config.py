"""Functions that read ``experts.yaml`` and build its experts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mildroute._checks import nearest
from mildroute._plugins import load_plugin
from mildroute._yaml import YamlDocument, read_document
from mildroute.configuration import check_document
from mildroute.costs.prices import Price, PriceList
from mildroute.exceptions import ArgumentError, TableError
from mildroute.experts.anthropic import VERSION as ANTHROPIC_VERSION
from mildroute.experts.base import Expert
from mildroute.experts.kinds import (
    BUILT_IN_KINDS,
    GROUP,
    AnswerPrice,
    AnthropicKind,
    ClassifierKind,
    ExpertFileModel,
    LiteLLMKind,
    OpenAIKind,
    PeopleKind,
    RecordedKind,
)
from mildroute.experts.literal_secrets import refuse_literal_secrets
from mildroute.experts.secrets import Secret

__all__ = ["ExpertFile", "ExpertSpec", "anthropic_headers", "build_expert", "read_experts"]

T = TypeVar("T")


@dataclass(frozen=True)
class ExpertSpec:
    """The entry of one expert in a file, before the expert is built.

    Args:
        name: Name of the expert.
        kind: 'openai', 'anthropic', 'litellm', 'classifier', 'recorded', 'people', or the name of
            an entry point.
        settings: All other keys, as written.
        line: Line of the name.
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
        """Return the file and line, as shown in messages."""
        return f"{self.path.name}:{self.line}"

    @property
    def price(self) -> Price | None:
        """Return the dollars per million tokens; ``None`` for a free or per-answer expert."""
        price = self.settings.get("price")
        if isinstance(price, Mapping):
            return None if "per_answer" in price else Price(**price)
        return None if price is None else Price(price, price)

    @property
    def per_answer(self) -> float | None:
        """Return the dollars per answer; ``None`` for a free or per-token expert."""
        price = self.settings.get("price")
        return price.get("per_answer") if isinstance(price, Mapping) else None


@dataclass(frozen=True)
class ExpertFile:
    """The experts of a file.

    Args:
        path: The file.
        experts: Experts in the order of the file.
        prices_date: Date of the prices, as written.
        judges: Experts that only judge answers; they get no queries and serve no requests.
        baseline: Name of the expert in use today, with whose cost savings are measured, or
            ``None``.

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
        """Return the prices per million tokens; ``None`` if no expert has such a price."""
        prices = {spec.name: spec.price for spec in self.experts if spec.price is not None}
        return PriceList(prices, self.prices_date, self.path.name) if prices else None

    def expert(self, name: str) -> ExpertSpec:
        """Return the expert with a name.

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
    r"""Read and check a file of experts, without building or calling any of them.

    Every error names the file and the line. Environment variables are not substituted:
    ``api_key_env`` names the variable of a key, and the key itself is never stored.

    Args:
        path: The YAML file.

    Returns:
        The experts of the file; ``build_expert`` builds each of them.

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
    model = check_document(document, ExpertFileModel)
    experts = _specs(document, "experts", path)
    judges = _specs(document, "judges", path) if model.judges else ()
    file = ExpertFile(path, experts, model.prices_date, judges, model.baseline)
    if model.baseline is not None:
        try:
            file.expert(model.baseline)
        except ArgumentError as error:
            raise document.error(("baseline",), f"baseline: {error}") from None
    return file


def _specs(document: YamlDocument, section: str, path: Path) -> tuple[ExpertSpec, ...]:
    return tuple(
        ExpertSpec(
            name,
            entry["kind"],
            {key: value for key, value in entry.items() if key != "kind"},
            document.line((section, name)),
            path,
        )
        for name, entry in document.value[section].items()
    )


def build_expert(spec: ExpertSpec) -> Expert:
    """Build an expert from its entry.

    Keys are read from the environment and files are opened, but no connection is made.

    Args:
        spec: One of a file's experts.

    Returns:
        The expert, which the caller must close.

    Example:
        >>> build_expert(ExpertSpec("crowd", "people", {"field": "label"})).name
        'crowd'
    """
    try:
        expert = _BUILDERS.get(spec.kind, _build_plugin)(spec)
    except (ArgumentError, TableError) as error:
        raise ArgumentError(f"{spec.where}: expert {spec.name!r}: {error}") from error
    if not isinstance(expert, Expert) or expert.name != spec.name:
        raise ArgumentError(
            f"{spec.where}: the kind {spec.kind!r} must build an Expert named {spec.name!r}, got"
            f" {expert!r:.80}."
        )
    return expert


def _settings_of(spec: ExpertSpec, model: type[T]) -> T:
    """Return the checked settings of an expert."""
    content = {"kind": spec.kind, **spec.settings}
    return check_document(YamlDocument(spec.path.name, content), model)


def _build_plugin(spec: ExpertSpec) -> Expert:
    maker = load_plugin(GROUP, spec.kind, thing="kind of expert", known=BUILT_IN_KINDS)
    expert: Expert = maker({**spec.settings, "name": spec.name})
    return expert


def _build_openai(spec: ExpertSpec) -> Expert:
    from mildroute.experts.openai import OpenAIExpert

    settings = _settings_of(spec, OpenAIKind)
    variable = settings.api_key_env
    return OpenAIExpert(
        spec.name,
        settings.model_settings(),
        settings.call_settings(),
        None if variable is None else Secret(variable),
        headers=settings.headers,
    )


def _build_litellm(spec: ExpertSpec) -> Expert:
    from mildroute.experts.litellm import LiteLLMModel
    from mildroute.experts.litellm_expert import LiteLLMExpert

    settings = _settings_of(spec, LiteLLMKind)
    calls = settings.call_settings()
    sdk_model = LiteLLMModel(spec.settings, calls.timeouts.total)
    return LiteLLMExpert(spec.name, settings.model_settings(), sdk_model, calls)


def _build_anthropic(spec: ExpertSpec) -> Expert:
    from mildroute.experts.openai import OpenAIExpert

    settings = _settings_of(spec, AnthropicKind)
    return OpenAIExpert(
        spec.name,
        settings.model_settings(),
        settings.call_settings(),
        headers=anthropic_headers(spec.settings),
    )


def anthropic_headers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the version, key and configured headers of every request to Anthropic's API.

    Example:
        >>> anthropic_headers({"api_key_env": "CLAUDE_KEY"})
        {'anthropic-version': '2023-06-01', 'x-api-key': {'env': 'CLAUDE_KEY'}}
    """
    headers: dict[str, Any] = {"anthropic-version": ANTHROPIC_VERSION}
    if settings.get("api_key_env") is not None:
        headers["x-api-key"] = {"env": settings["api_key_env"]}
    # Header names are case-insensitive.
    return headers | {name.lower(): value for name, value in settings.get("headers", {}).items()}


def _build_classifier(spec: ExpertSpec) -> Expert:
    from mildroute.experts.classifier import ClassifierExpert

    settings = _settings_of(spec, ClassifierKind)
    return ClassifierExpert.from_path(
        spec.name,
        settings.import_path,
        arguments=settings.arguments,
        version=settings.version,
        field=settings.field,
        dollars=_dollars(settings.price),
        batch_size=settings.batch_size,
        concurrency=settings.concurrency,
    )


def _build_recorded(spec: ExpertSpec) -> Expert:
    from mildroute.experts.replay import ReplayExpert

    settings = _settings_of(spec, RecordedKind)
    path = spec.path.parent / Path(settings.path).expanduser()
    return ReplayExpert.read(spec.name, path, version=settings.version)


def _build_people(spec: ExpertSpec) -> Expert:
    from mildroute.experts.annotators import AnnotatorExpert

    settings = _settings_of(spec, PeopleKind)
    return AnnotatorExpert(
        spec.name,
        field=settings.field,
        votes=settings.votes,
        seed=settings.seed,
        version=settings.version,
        dollars=_dollars(settings.price),
    )


def _dollars(price: AnswerPrice | None) -> float:
    return 0.0 if price is None else price.per_answer


_BUILDERS: Mapping[str, Callable[[ExpertSpec], Expert]] = {
    "openai": _build_openai,
    "anthropic": _build_anthropic,
    "litellm": _build_litellm,
    "classifier": _build_classifier,
    "recorded": _build_recorded,
    "people": _build_people,
}
