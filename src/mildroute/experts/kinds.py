"""The settings of each kind of expert in ``experts.yaml``, as pydantic models."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from mildroute._checks import nearest
from mildroute._optional import needs_extra
from mildroute._plugins import plugin_names
from mildroute._short_form import ShortForm
from mildroute.configuration import MODEL
from mildroute.costs.prices import Price
from mildroute.exceptions import ArgumentError
from mildroute.experts.field_template import FieldTemplate
from mildroute.experts.import_path import validate_import_path
from mildroute.experts.prompts import PromptTemplate
from mildroute.experts.retry import Backoff
from mildroute.experts.secrets import validate_headers, validate_variable
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

with needs_extra("pydantic", extra="collect", user="experts.yaml"):
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Discriminator,
        Field,
        Tag,
        model_validator,
    )

__all__ = [
    "BUILT_IN_KINDS",
    "GROUP",
    "AnswerPrice",
    "AnthropicKind",
    "ClassifierKind",
    "ExpertFileModel",
    "LanguageModel",
    "LiteLLMKind",
    "OpenAIKind",
    "PeopleKind",
    "PluginKind",
    "RecordedKind",
    "TokenPrice",
    "expert_kinds",
]

# Entry-point group for kinds from other packages: callables that return an expert for its settings,
# which include its name.
GROUP = "mildroute.experts"
BUILT_IN_KINDS = ("anthropic", "classifier", "litellm", "openai", "people", "recorded")
_INVISIBLE = {"Cc", "Cs", "Zl", "Zp"}

Count = Annotated[int, Field(gt=0, le=2**63 - 1)]
NaturalNumber = Annotated[int, Field(ge=0, le=2**63 - 1)]
Dollars = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(min_length=1, pattern=r"\S")]
Variable = Annotated[str, BeforeValidator(validate_variable, json_schema_input_type=str)]
BaseURL = Annotated[str, BeforeValidator(validate_base_url, json_schema_input_type=str)]
ImportPath = Annotated[str, BeforeValidator(validate_import_path, json_schema_input_type=str)]
Settings = dict[str, Any]
Request = Annotated[Settings, BeforeValidator(validate_request, json_schema_input_type=Settings)]
Parameters = Annotated[Settings, BeforeValidator(validate_params, json_schema_input_type=Settings)]
Query = Annotated[
    dict[str, str | int],
    BeforeValidator(validate_query, json_schema_input_type=dict[str, str | int]),
]
Headers = Annotated[
    Settings,
    BeforeValidator(
        validate_headers,
        json_schema_input_type=dict[str, str | dict[Literal["env", "prefix"], str]],
    ),
]


def _validate_template(text: str) -> str:
    return FieldTemplate(text).text


Template = Annotated[str, AfterValidator(_validate_template)]


class FileModel(BaseModel):
    """A mapping in ``experts.yaml``."""

    model_config = ConfigDict(frozen=True, **MODEL)


class TokenPrice(FileModel):
    """Dollars per million tokens."""

    input: Dollars
    """Dollars per million input tokens."""

    output: Dollars
    """Dollars per million output tokens."""

    cached_input: Dollars | None = None
    """Dollars per million input tokens read from the provider's prompt cache; defaults to the price
    of other input."""

    cache_write: Dollars | None = None
    """Dollars per million input tokens written to the provider's prompt cache; defaults to the
    price of other input."""

    def to_price(self) -> Price:
        """Return the price in the form of cost tables."""
        return Price(self.input, self.output, self.cached_input, self.cache_write)


class AnswerPrice(FileModel):
    """Dollars per answer."""

    per_answer: Dollars
    """Dollars per answer."""


def _check_token_price(price: Any) -> Any:
    is_number = isinstance(price, (int, float)) and not isinstance(price, bool)
    if not (is_number or isinstance(price, dict)):
        raise ArgumentError(
            "a price in dollars per million tokens must be a finite number, or {input: ..., output:"
            f" ...}}, got {price!r:.60}."
        )
    if isinstance(price, dict) and "per_answer" in price:
        raise ArgumentError(
            "this kind is paid by the token; write {input: ..., output: ...} in dollars per million"
            " tokens, or one number."
        )
    return price


def _check_answer_price(price: Any) -> Any:
    if not isinstance(price, dict) or "per_answer" not in price:
        raise ArgumentError("this kind is paid by the answer; write {per_answer: ...} in dollars.")
    return price


PricePerToken: TypeAlias = Annotated[
    TokenPrice, ShortForm(float, ("input", "output")), BeforeValidator(_check_token_price)
]
PricePerAnswer: TypeAlias = Annotated[AnswerPrice, BeforeValidator(_check_answer_price)]


class PromptSettings(FileModel):
    """The prompt of a query; ``{field}`` stands for a field of the query."""

    user: Template = "{input}"
    """Template of the user's message."""

    system: Text | None = None
    """Text of the system message, in which braces are literal."""

    examples: list[dict[str, Any]] = Field(default_factory=list)
    """Solved queries that precede the query: the fields of the user template, and ``answer``."""

    raw: Template | None = None
    """Template of a complete prompt for ``/completions``, sent in place of messages."""

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse parts that contradict each other."""
        self.template()
        return self

    def template(self) -> PromptTemplate:
        """Return the template of prompts."""
        return PromptTemplate(self.user, self.system, self.examples, self.raw)


class LanguageModel(FileModel):
    """Settings that all kinds of language models share."""

    model: Text
    """Name of the model at its address."""

    api_key_env: Variable | None = None
    """Environment variable of the key."""

    price: PricePerToken | None = None
    """Dollars per million tokens; one number is for input and output."""

    concurrency: Count = 8
    """Maximum number of concurrent calls."""

    timeout: Annotated[Timeouts, ShortForm(float, ("total",))] = Timeouts()
    """Seconds for one attempt (60 by default), or ``{total: 60, connect: 10, read: 30}``."""

    retries: NaturalNumber = 4
    """Maximum number of retries after lost connections, timeouts and broken answers."""

    context: Count | None = None
    """Maximum tokens of prompt and answer together."""

    capabilities: list[Literal["json", "tools", "vision"]] | None = None
    """Capabilities that a gateway checks: ``json``, ``tools`` and ``vision``. Without this setting,
    every request may be sent."""

    prompt: PromptSettings = PromptSettings()
    """The prompt of a query in ``mildroute collect``."""

    request: Request = Field(default_factory=dict)
    """Additional fields of every request, such as ``max_tokens``, sent unchanged."""

    headers: Headers = Field(default_factory=dict)
    """Additional headers of every request: texts, or ``{env: VARIABLE}`` with an optional
    ``prefix``."""

    version: Text = ""
    """Your own name for this version of the expert; change it when its answers change."""

    def call_settings(self) -> CallSettings:
        """Return the settings of calls."""
        return CallSettings(self.concurrency, self.timeout, Backoff(retries=self.retries))

    def _model_arguments(self) -> dict[str, Any]:
        """Return the arguments that the model settings of all kinds share."""
        return {
            "model": self.model,
            "prompt": self.prompt.template(),
            "request": self.request,
            "price": None if self.price is None else self.price.to_price(),
            "context": self.context,
            "version": self.version,
        }


class OpenAIKind(LanguageModel):
    """A language model behind an OpenAI-compatible address."""

    kind: Literal["openai"]
    """``openai``"""

    base_url: BaseURL
    """Address to which ``/chat/completions`` is appended, such as ``https://api.example.com/v1``."""

    query: Query = Field(default_factory=dict)
    """Query string of the address, such as Azure's ``api-version``; no secrets."""

    include_usage: bool = True
    """Request token counts at the end of a stream."""

    logprobs: bool = False
    """Request log-probabilities of an answer's tokens."""

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse settings that contradict each other."""
        validate_headers(self.headers, has_key=self.api_key_env is not None)
        self.model_settings()
        return self

    def model_settings(self) -> ModelSettings:
        """Return the settings of the model."""
        return ModelSettings(
            self.base_url, logprobs=self.logprobs, query=self.query, **self._model_arguments()
        )


class AnthropicKind(LanguageModel):
    """A language model behind Anthropic's Messages API."""

    kind: Literal["anthropic"]
    """``anthropic``"""

    base_url: BaseURL
    """Address to which ``/v1/messages`` is appended, such as ``https://api.anthropic.com``."""

    query: Query = Field(default_factory=dict)
    """Query string of the address; no secrets."""

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse settings that contradict each other."""
        if self.api_key_env is not None and "x-api-key" in map(str.lower, self.headers):
            raise ArgumentError(
                "headers must not contain 'x-api-key' beside api_key_env, which sets it; leave one"
                " of them out."
            )
        self.model_settings()
        return self

    def model_settings(self) -> AnthropicSettings:
        """Return the settings of the model."""
        return AnthropicSettings(self.base_url, query=self.query, **self._model_arguments())


class LiteLLMKind(LanguageModel):
    """A language model of any provider that LiteLLM's SDK supports."""

    kind: Literal["litellm"]
    """``litellm``"""

    base_url: BaseURL | None = None
    """Address, if it differs from the provider's own."""

    params: Parameters = Field(default_factory=dict)
    """Additional arguments of LiteLLM's functions, such as ``aws_region_name``; ``{env: VARIABLE}``
    names an environment variable."""

    include_usage: bool = True
    """Request token counts at the end of a stream."""

    logprobs: bool = False
    """Request log-probabilities of an answer's tokens."""

    @model_validator(mode="after")
    def check_together(self) -> Self:
        """Refuse settings that contradict each other."""
        validate_headers(self.headers, has_key=self.api_key_env is not None)
        self.model_settings()
        return self

    def model_settings(self) -> ModelSettings:
        """Return the settings of the model."""
        return ModelSettings(self.base_url, logprobs=self.logprobs, **self._model_arguments())


class ClassifierKind(FileModel):
    """A scikit-learn classifier or pipeline, or a function from texts to labels."""

    kind: Literal["classifier"]
    """``classifier``"""

    import_path: ImportPath = Field(alias="import")
    """Import path of the classifier, or of a function that returns it: ``package.module:name``."""

    arguments: Settings = Field(default_factory=dict)
    """Arguments of that function."""

    field: Text | None = None
    """Field of the query that contains a vector; without it, the classifier gets the input."""

    price: PricePerAnswer | None = None
    """Dollars per answer, as ``{per_answer: 0.01}``."""

    batch_size: Count = 64
    """Number of queries in one batch."""

    concurrency: Count = 1
    """Maximum number of concurrent batches."""

    version: Text = ""
    """Your own name for this version of the expert; change it when its answers change."""


class RecordedKind(FileModel):
    """Answers that were recorded earlier."""

    kind: Literal["recorded"]
    """``recorded``"""

    path: Text
    """Parquet or JSON Lines file with ``query_id`` and ``text``, relative to ``experts.yaml``."""

    version: Text = ""
    """Your own name for this version of the expert; change it when its answers change."""


class PeopleKind(FileModel):
    """Labels from people, in a field of the query."""

    kind: Literal["people"]
    """``people``"""

    field: Text
    """Field that contains one label, a list of labels, or votes per label."""

    votes: Literal["majority", "single"] = "majority"
    """Label to use if there are several: that of the ``majority``, or of a ``single`` person drawn
    at random."""

    seed: NaturalNumber = 0
    """Seed of the draw."""

    price: PricePerAnswer | None = None
    """Dollars per answer, as ``{per_answer: 0.08}``."""

    version: Text = ""
    """Your own name for this version of the expert; change it when its answers change."""


def _validate_kind(kind: str) -> str:
    if kind not in expert_kinds():
        raise ArgumentError(f"unknown kind {kind!r:.60}; {nearest(kind, expert_kinds())}")
    return kind


def _check_plugin_price(price: Any) -> Any:
    is_per_answer = isinstance(price, dict) and "per_answer" in price
    return price if is_per_answer else _check_token_price(price)


class PluginKind(FileModel, extra="ignore"):
    """A kind from another package, which checks its own settings."""

    kind: Annotated[str, AfterValidator(_validate_kind)] = Field(
        json_schema_extra={"not": {"enum": list(BUILT_IN_KINDS)}}
    )
    """Name of an entry point."""

    price: (
        Annotated[
            AnswerPrice | Annotated[TokenPrice, ShortForm(float, ("input", "output"))],
            BeforeValidator(_check_plugin_price),
        ]
        | None
    ) = None
    """Dollars per answer, as ``{per_answer: 0.01}``, or per million tokens."""


def expert_kinds() -> list[str]:
    """Return the built-in kinds and those of installed packages."""
    return sorted({*BUILT_IN_KINDS, *plugin_names(GROUP)})


def _tag(entry: Any) -> str:
    kind = entry.get("kind") if isinstance(entry, Mapping) else getattr(entry, "kind", None)
    return kind if isinstance(kind, str) and kind in BUILT_IN_KINDS else "plugin"


def _check_entry(entry: Any) -> Any:
    if not isinstance(entry, dict) or "kind" not in entry:
        raise ArgumentError(f"it must be a mapping with the key kind: {', '.join(expert_kinds())}.")
    return entry


def _check_named(experts: Any) -> Any:
    if not isinstance(experts, dict) or not experts:
        raise ArgumentError(
            "it must name at least one expert; write 'name:' below it, indented, and its keys below"
            " that."
        )
    return experts


def _validate_name(name: str) -> str:
    is_blank = not name.strip() or name != name.strip()
    if is_blank or any(unicodedata.category(letter) in _INVISIBLE for letter in name):
        raise ArgumentError(
            "names of experts must not be empty or contain line breaks or spaces at their ends,"
            f" got {name!r:.60}."
        )
    return name


Entry = Annotated[
    Annotated[OpenAIKind, Tag("openai")]
    | Annotated[AnthropicKind, Tag("anthropic")]
    | Annotated[LiteLLMKind, Tag("litellm")]
    | Annotated[ClassifierKind, Tag("classifier")]
    | Annotated[RecordedKind, Tag("recorded")]
    | Annotated[PeopleKind, Tag("people")]
    | Annotated[PluginKind, Tag("plugin")],
    Discriminator(_tag),
    BeforeValidator(_check_entry),
]
Entries = Annotated[
    dict[Annotated[str, AfterValidator(_validate_name)], Entry], BeforeValidator(_check_named)
]


class ExpertFileModel(FileModel):
    """The content of ``experts.yaml``."""

    experts: Entries
    """Experts by name, which may answer queries."""

    judges: Entries = Field(default_factory=dict)
    """Experts by name that only judge answers: they get no queries and are never served."""

    prices_date: Text | None = None
    """Date of the prices."""

    baseline: Text | None = None
    """Expert in use today, with whose cost savings are measured."""
