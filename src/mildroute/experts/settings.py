"""Settings of an expert's model and of the calls to it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode, urlsplit

from mildroute._checks import validate_amount, validate_count
from mildroute._fingerprint import fingerprint
from mildroute.costs.prices import Price
from mildroute.exceptions import ArgumentError
from mildroute.experts.anthropic import DEFAULT_MAX_TOKENS, message_body, parse_message
from mildroute.experts.base import Query
from mildroute.experts.completion import Completion, parse_completion
from mildroute.experts.prompts import PromptTemplate
from mildroute.experts.retry import Backoff
from mildroute.experts.secrets import validate_variable

__all__ = [
    "AnthropicSettings",
    "CallSettings",
    "ModelSettings",
    "Timeouts",
    "is_variable",
    "messages_url",
    "query_string",
    "validate_base_url",
    "validate_params",
    "validate_query",
    "validate_request",
]


_RESERVED = ("messages", "model", "prompt", "stream", "stream_options")
_BOUNDS = ("max_tokens", "max_completion_tokens")
# Upper bound on the tokens that a server adds to a prompt.
HIDDEN_PROMPT = 256
# Arguments of LiteLLM's functions that must not be set as params: those with a setting of their
# own, whose name is the value, and those that would invalidate counts and bounds.
_ARGUMENTS = {
    "api_base": "base_url",
    "api_key": "api_key_env",
    "base_url": "base_url",
    "extra_headers": "headers",
    "headers": "headers",
    "timeout": "timeout",
    **dict.fromkeys(
        ("messages", "model", "stream", "stream_options", "input", "prompt", "fallbacks"), ""
    ),
    **dict.fromkeys(("max_retries", "num_retries", "mock_response", "n"), ""),
}


def validate_base_url(url: str) -> str:
    """Return the base URL without a trailing slash.

    Args:
        url: URL such as ``https://api.example.com/v1``.
    """
    if not isinstance(url, str) or any(
        letter.isspace() or not letter.isprintable() for letter in url
    ):
        raise ArgumentError(
            "base_url must be a string without spaces; write it as https://host/v1."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ArgumentError(
            f"base_url must be a valid address: {error}; write it as https://host/v1."
        ) from None
    # The text before an @ or after a ? may be a key, so the message does not show the address.
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ArgumentError(
            "base_url must contain no user, password, query or fragment; name the key's variable in"
            " api_key_env, and write a query as query: {name: value}."
        )
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ArgumentError(
            f"base_url must start with http:// or https:// and name a host, got {url!r:.80}; write"
            " it as https://host/v1."
        )
    return url.rstrip("/")


def validate_query(query: Any) -> Mapping[str, str | int]:
    """Return the query string of an address, such as Azure's api-version, if it is valid.

    Args:
        query: Strings or whole numbers by name; no secrets, because proxies would log them.
    """
    if not isinstance(query, Mapping) or not all(isinstance(name, str) for name in query):
        raise ArgumentError(
            "query must be a mapping from names to strings; write api-version: 2024-10-21."
        )
    for name, value in query.items():
        if not name or isinstance(value, bool) or not isinstance(value, (str, int)):
            raise ArgumentError(
                f"query must contain strings or whole numbers, got {type(value).__name__} under"
                f" {name!r:.60}; quote the value, or move a key to headers."
            )
    return query


def query_string(query: Mapping[str, str | int]) -> str:
    """Return the query string with its question mark; empty if there is no query.

    Example:
        >>> query_string({"api-version": "2024-10-21"})
        '?api-version=2024-10-21'
    """
    return f"?{urlencode(query)}" if query else ""


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of one attempt, in seconds.

    Args:
        total: Seconds from sending to the last byte.
        connect: Seconds until the connection is established.
        read: Maximum seconds without receiving a byte; defaults to the total, because models may
            think before they answer.

    Example:
        >>> Timeouts(30).connect
        10.0
    """

    total: float = field(default=60.0, metadata={"gt": 0})
    connect: float = field(default=10.0, metadata={"gt": 0})
    read: float | None = field(default=None, metadata={"gt": 0})

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("total", "connect", "read"):
            if name != "read" or self.read is not None:
                validate_amount(f"seconds of a {name} timeout", getattr(self, name), positive=True)


@dataclass(frozen=True)
class CallSettings:
    """Concurrency, timeouts and retries of calls, which do not affect answers.

    Args:
        concurrency: Maximum number of concurrent calls.
        timeouts: Timeouts of one attempt.
        backoff: Rule for retries of a failed attempt.
        largest: Maximum bytes of an answer; a longer one is an error and is never read in full.

    Example:
        >>> CallSettings(concurrency=2).timeouts.total
        60.0
    """

    concurrency: int = 8
    timeouts: Timeouts = field(default_factory=Timeouts)
    backoff: Backoff = field(default_factory=Backoff)
    largest: int = 4 * 2**20

    def __post_init__(self) -> None:
        """Check the counts."""
        for name in ("concurrency", "largest"):
            validate_count(name, getattr(self, name))


@dataclass(frozen=True)
class ModelSettings:
    """A model behind an address, with its prompt, its sampling and its price.

    Args:
        base_url: Address to which ``/chat/completions`` is appended; ``None`` if an SDK knows the
            address. The address is not part of the version, because a server that moves returns
            the same answers. If a new address means different answers, change ``version``.
        model: Name of the model at that address.
        prompt: Template that turns a query into its prompt.
        request: Additional keys of the request (max_tokens, temperature, ...), sent unchanged.
        price: Dollars per million tokens; ``None`` for a model that costs nothing.
        context: Maximum tokens of prompt and answer together, if known.
        version: Your own name for this version; may be empty.
        logprobs: Whether to request log-probabilities of an answer's tokens. They are not part of
            the version, because they do not change the answer.
        query: Query string of the address; it is not part of the version either.

    Example:
        >>> url, request = "http://127.0.0.1:8080/v1", {"max_tokens": 64}
        >>> settings = ModelSettings(url, "smollm2", request=request, price=Price(1.0, 2.0))
        >>> settings.body(Query("q1", "Hi"))
        b'{"max_tokens": 64, "model": "smollm2", "messages": [{"role": "user", "content": "Hi"}]}'
        >>> settings.max_cost(b"x" * 744)
        0.001128
    """

    base_url: str | None
    model: str
    prompt: PromptTemplate = field(default_factory=PromptTemplate)
    request: Mapping[str, Any] = field(default_factory=dict)
    price: Price | None = None
    context: int | None = None
    version: str = ""
    logprobs: bool = False
    query: Mapping[str, str | int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check all settings that are not checked by their own types."""
        if self.base_url is not None:
            object.__setattr__(self, "base_url", validate_base_url(self.base_url))
        if not isinstance(self.model, str) or not self.model.strip():
            raise ArgumentError(
                f"model must be the name of a model, got {self.model!r}; put it in quotes."
            )
        validate_request(self.request)
        validate_query(self.query)
        if self.context is not None:
            validate_count("context", self.context)
        if self.logprobs and self.prompt.raw is not None:
            raise ArgumentError(
                "logprobs must be false for a raw prompt, because log-probabilities are only read"
                " from /chat/completions; leave logprobs out, or give a user prompt."
            )

    @property
    def url(self) -> str:
        """Return the address of the requests."""
        return f"{self.base_url}/{self.prompt.path}{query_string(self.query)}"

    @property
    def fingerprint(self) -> str:
        """Return the expert's version.

        The version depends on model, prompt, request, price and ``version`` alone.
        """
        return fingerprint("openai", self._version_parts(), version=self.version)

    def _version_parts(self) -> dict[str, Any]:
        # Tables contain list prices, so a discount for cached tokens is not part of the version.
        price = None if self.price is None else [self.price.input, self.price.output]
        return {
            "model": self.model,
            "prompt": self.prompt.as_dict(),
            "request": self.request,
            "price": price,
        }

    def body(self, query: Query) -> bytes:
        """Return the request as JSON; raise if the query lacks a field that the prompt needs."""
        logprobs = {"logprobs": True} if self.logprobs else {}
        return json.dumps(
            {**self.request, **logprobs, "model": self.model, **self.prompt.payload(query)}
        ).encode()

    def max_cost(self, body: bytes) -> float:
        """Return the maximum cost of one attempt; infinite if the answer is not bounded.

        No token is shorter than a byte, so the bytes of the request, plus some slack for tokens
        that a server adds, bound the input tokens. ``max_tokens``, ``max_completion_tokens`` or
        ``context`` bounds the output tokens.
        """
        return self.dollars_for(len(body) + HIDDEN_PROMPT)

    def dollars_for(self, tokens_in: float) -> float:
        """Return the cost of one attempt with the longest answer; infinite if it is not bounded."""
        if self.price is None:
            return 0.0
        longest = self._max_output_tokens()
        return float(self.price.cost(tokens_in, longest if self.price.output else 0))

    def _max_output_tokens(self) -> float:
        bounds = [self.request[name] for name in _BOUNDS if self.request.get(name) is not None]
        return max(bounds) if bounds else (math.inf if self.context is None else self.context)

    def parse(self, document: Any) -> Completion:
        """Return the answer in a parsed body of any shape."""
        return parse_completion(document)


@dataclass(frozen=True)
class AnthropicSettings(ModelSettings):
    """A model behind Anthropic's Messages API.

    ``request`` has the fields of the Messages API, which are sent unchanged.

    Example:
        >>> claude = AnthropicSettings("https://api.anthropic.com", "claude-opus-5-5")
        >>> claude.url
        'https://api.anthropic.com/v1/messages'
        >>> claude.body(Query("q1", "Hi"))[:48]
        b'{"model": "claude-opus-5-5", "max_tokens": 4096,'
    """

    def __post_init__(self) -> None:
        """Check the settings."""
        super().__post_init__()
        if self.prompt.raw is not None:
            raise ArgumentError(
                "prompt must not be raw for kind anthropic, whose API takes messages; give a user"
                " prompt."
            )

    @property
    def url(self) -> str:
        """Return the address of the requests."""
        return messages_url(self.base_url or "") + query_string(self.query)

    @property
    def fingerprint(self) -> str:
        """Return the expert's version; see :attr:`ModelSettings.fingerprint`."""
        return fingerprint("anthropic", self._version_parts(), version=self.version)

    def body(self, query: Query) -> bytes:
        """Return the request as JSON; raise if the query lacks a field that the prompt needs."""
        messages = self.prompt.payload(query)["messages"]
        return json.dumps(message_body(self.model, messages, self.request)).encode()

    def _max_output_tokens(self) -> float:
        return float(self.request.get("max_tokens", DEFAULT_MAX_TOKENS))

    def parse(self, document: Any) -> Completion:
        """Return the answer in a parsed body of any shape."""
        return parse_message(document)


def messages_url(base_url: str) -> str:
    """Return the address of the Messages API; the base URL may or may not end in ``/v1``.

    Example:
        >>> messages_url("https://api.anthropic.com/v1")
        'https://api.anthropic.com/v1/messages'
    """
    return f"{base_url.rstrip('/').removesuffix('/v1')}/v1/messages"


def validate_request(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return additional keys of a request if they are valid and mildroute does not set them."""
    if not isinstance(request, Mapping) or any(not isinstance(name, str) for name in request):
        raise ArgumentError(
            f"request must be a mapping from names to values, got {type(request).__name__}; write"
            " max_tokens: 64."
        )
    reserved = sorted(set(_RESERVED) & request.keys())
    if reserved:
        raise ArgumentError(
            f"request must not contain {reserved[0]!r}, which mildroute sets itself; put model and"
            " prompt next to request."
        )
    for name in ("n", "best_of"):
        if request.get(name, 1) not in (None, 1):
            raise ArgumentError(
                f"request must be for one answer, got {name}={request[name]!r}; additional answers"
                " would be paid for and discarded."
            )
    for name in _BOUNDS:
        if request.get(name) is not None:
            validate_count(name, request[name])
    try:
        json.dumps(request, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"request must be JSON-serializable: {error}; use finite numbers, strings, lists and"
            " mappings."
        ) from None
    return request


def validate_params(params: Any) -> Mapping[str, Any]:
    """Return additional arguments of LiteLLM's functions, such as ``aws_region_name``, if valid.

    Args:
        params: Arguments by name; a mapping with only ``env`` names an environment variable.
    """
    if not isinstance(params, Mapping) or any(not isinstance(name, str) for name in params):
        raise ArgumentError(
            "params must be a mapping from names to values; write aws_region_name: eu-west-1."
        )
    for name, value in params.items():
        if name in _ARGUMENTS:
            instead = (
                f"put {_ARGUMENTS[name]} next to params" if _ARGUMENTS[name] else "leave it out"
            )
            raise ArgumentError(
                f"params must not contain {name!r}, which mildroute sets itself; {instead}."
            )
        if is_variable(value):
            validate_variable(value["env"])
    return params


def is_variable(value: Any) -> bool:
    """Return whether a parameter's value names an environment variable."""
    return isinstance(value, Mapping) and [*value] == ["env"]
