"""The body of a request: its model, the text to route, its needs and its maximum cost.

A body is decoded once, to a dict that is changed and serialized again for the expert. The expert
therefore reads exactly the fields that were counted: a name that occurs twice has one value from
here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mildroute.decision.conversation import conversation_digest, named_conversation
from mildroute.decision.prompt import (
    LAST,
    RoutedPrompt,
    RoutingInput,
    prompt_of_messages,
    prompt_of_texts,
    text_of,
)
from mildroute.exceptions import ArgumentError, MissingExtraError
from mildroute.gateway.http.errors import APIError

try:
    import orjson
except ImportError:
    raise MissingExtraError.for_package("orjson", extra="serve", user="mildroute.gateway") from None

__all__ = ["PATHS", "BadRequest", "ParsedRequest", "parse_request", "read_object"]

# Maximum objects and lists in a body. A decoded one takes 20 times its bytes.
_MAX_CONTAINERS = 200_000
# Decoding holds the interpreter lock: four million numbers would stop all requests for 0.2 s. A
# text with this many commas is longer than any model can read.
_MAX_COMMAS = 500_000
_MAX_FIELDS = 10_000
_MAX_MODEL_LENGTH = 256
_MAX_CHOICES = 1 << 20
_JSON_FORMATS = ("json_object", "json_schema")
_PROMPT_FIELD = {
    "chat/completions": "messages",
    "completions": "prompt",
    "responses": "input",
    "embeddings": "input",
    "messages": "messages",
    "messages/count_tokens": "messages",
}
# Paths that experts serve, below ``/v1``.
PATHS = tuple(_PROMPT_FIELD)
_CHATS = ("chat/completions", "messages", "messages/count_tokens")
_MAX_TOKENS_FIELDS = {
    "chat/completions": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "embeddings": (),
    "messages": ("max_tokens",),
    "messages/count_tokens": (),
}
# Fields that some servers read in any spelling.
_EXACT_NAMES = frozenset(
    {"model", "n", "best_of", *(name for names in _MAX_TOKENS_FIELDS.values() for name in names)}
)
# Paths of responses with choices.
_CHOSEN = ("chat/completions", "completions")
# Maximum length at which any other field, such as a suffix or a prediction, is not counted as text.
_SHORT_FIELD = 256
_COUNTED_FIELDS = (
    *("tools", "functions", "response_format", "text", "instructions", "system"),
    *("output_config", "output_format"),
)
_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


class BadRequest(APIError):  # noqa: N818 - named for its status
    """An error for a body that no expert could serve.

    Args:
        message: The rule, the violation and the remedy. It quotes nothing from the body except
            names of fields.
        param: The invalid field, or ``None``.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, message, param=param)


@dataclass(frozen=True)
class ParsedRequest:
    """The part of a request that routing needs.

    Args:
        path: One of :data:`PATHS`.
        model: Value of ``model``: a route, or the name of an expert.
        text: The text to route.
        fields: The decoded body.
        size: Bytes of the body.
        is_stream: Whether the client wants a stream.
        needs: Required capabilities of the expert: ``"tools"``, ``"vision"``, ``"json"``.
        tokens_in: Tokens of the request, estimated from its characters.
        tokens_out: Maximum tokens of one choice that the client allows, or ``None``.
        choices: Number of generated responses: ``n`` or ``best_of`` for each prompt.
        conversation: A digest that stays the same while a conversation continues, or ``None``.
        owner: The expert whose response this request continues, or ``None``. No other expert knows
            that response.
        is_first_turn: Whether the request contains no answer yet. Such a request begins a new
            conversation, even if an earlier one with the same words has the same digest.
        is_tool_result: Whether the request ends with the result of a tool.
    """

    path: str
    model: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    size: int = 0
    is_stream: bool = False
    needs: frozenset[str] = frozenset()
    tokens_in: int = 0
    tokens_out: int | None = None
    choices: int = 1
    conversation: str | None = None
    owner: str | None = None
    is_first_turn: bool = False
    is_tool_result: bool = False

    @property
    def previous_id(self) -> str | None:
        """Return the id of the response that this request continues, or ``None``."""
        value = self.fields.get("previous_response_id") if self.path == "responses" else None
        return value if isinstance(value, str) and value else None

    @property
    def lacks_usage(self) -> bool:
        """Return whether the client wants a stream and did not request its usage."""
        options = self.fields.get("stream_options")
        if not self.is_stream or self.path not in _CHOSEN:
            return False
        # The expert rejects options that are not an object.
        return options is None or (
            isinstance(options, dict) and options.get("include_usage") is not True
        )

    def continues(self, response_id: str, owner: str) -> ParsedRequest:
        """Return the request with the owner's own id of its response."""
        return replace(
            self, fields={**self.fields, "previous_response_id": response_id}, owner=owner
        )

    def body_for(self, model: str, *, include_usage: bool = False, logprobs: bool = False) -> bytes:
        """Return the body for an expert.

        Args:
            model: Name of the model in the expert's API.
            include_usage: Whether to request usage for a stream when the client did not.
            logprobs: Whether to request log-probabilities.

        Raises:
            BadRequest: The body is nested too deeply to be serialized.
        """
        changes: dict[str, Any] = {"model": model}
        if include_usage and self.lacks_usage:
            options = self.fields.get("stream_options") or {}
            changes["stream_options"] = {**options, "include_usage": True}
        if logprobs:
            changes["logprobs"] = True
        try:
            return orjson.dumps({**self.fields, **changes})
        except TypeError:
            raise _too_deep() from None


def read_object(body: bytes | bytearray) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        BadRequest: The body is not a JSON object, or has too many objects, lists or values.
    """
    containers = body.count(b"{") + body.count(b"[")
    if containers > _MAX_CONTAINERS:
        raise BadRequest(
            f"a body must have at most {_MAX_CONTAINERS:,} objects and lists, got {containers:,};"
            " send them in several requests."
        )
    commas = body.count(b",")
    if commas > _MAX_COMMAS:
        raise BadRequest(
            f"a body must have at most {_MAX_COMMAS:,} commas, got {commas:,}; send it in several"
            " requests."
        )
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(
            f"the body must be JSON in UTF-8, got an error at character {error.pos} ({error.msg});"
            " send valid JSON."
        ) from None
    if type(document) is not dict:
        raise BadRequest(
            "the body must be a JSON object, got something else; send an object with a model."
        )
    if len(document) > _MAX_FIELDS:
        raise BadRequest(f"a body must have at most {_MAX_FIELDS:,} fields, got {len(document):,}.")
    return document


def parse_request(
    path: str,
    fields: Mapping[str, Any],
    salt: str = "",
    routed: RoutingInput = LAST,
    *,
    size: int = 0,
) -> ParsedRequest:
    """Return the part of a request that routing needs; the expert validates the other fields.

    The text to route is the last user message that has text, unless ``routed`` says otherwise: most
    routers are trained on single queries. A conversation is recognized, in this order, by
    ``metadata.conversation_id``, by a response's ``conversation``, by its ``previous_response_id``,
    or by ``user`` and all messages up to and including the user's first one, which every turn
    repeats. A request without a message of the assistant is a first turn.

    Args:
        path: One of :data:`PATHS`.
        fields: The decoded body.
        salt: The owner of the request, such as the name of the client's key; it is part of the
            digest of the conversation.
        routed: The part of the messages that the router reads.
        size: Bytes of the body.

    Raises:
        BadRequest: The body has no ``model``, or one of the fields read here has a wrong type.
    """
    if path not in _PROMPT_FIELD:
        raise APIError(
            404, f"the path must be one of {', '.join(PATHS)}, under /v1/; this one is not served."
        )
    model = _model_of(fields)
    is_stream = _flag(fields, "stream")
    system = _system_of(path, fields)
    try:
        prompt = _prompt_of(path, fields, routed, system)
    except ArgumentError as error:
        raise BadRequest(str(error), _PROMPT_FIELD[path]) from None
    if fields.get("background"):
        raise BadRequest(
            "background must be false or omitted: the gateway would never see the cost of such a"
            " response.",
            "background",
        )
    _count_fields(path, fields, prompt)
    is_first_turn, conversation = _conversation_of(path, fields, prompt, system, salt)
    return ParsedRequest(
        path=path,
        model=model,
        text=prompt.text,
        fields=fields,
        size=size,
        is_stream=is_stream,
        needs=_needs_of(fields, prompt),
        tokens_in=prompt.estimate(),
        tokens_out=_max_tokens(path, fields),
        choices=_choices(path, fields),
        conversation=conversation,
        is_first_turn=is_first_turn,
        is_tool_result=prompt.is_tool_result,
    )


def _too_deep() -> BadRequest:
    return BadRequest(
        "the body must not be nested too deeply, got more levels than can be serialized; send a"
        " flatter one."
    )


def _wrong_type(name: str, expected: str, value: Any) -> BadRequest:
    actual = _TYPE_NAMES.get(type(value), "null")
    return BadRequest(f"{name} must be {expected}, got {actual}.", name)


def _model_of(fields: Mapping[str, Any]) -> str:
    for spelling in fields:
        name = spelling.lower()
        if name in _EXACT_NAMES and spelling not in _EXACT_NAMES:
            # Some servers ignore the case of names, so such a field could set the model, or the
            # size of the bill, unchecked.
            raise BadRequest(
                f"{name} must be written in lowercase, got another spelling; correct or omit it.",
                name,
            )
    if "model" not in fields:
        raise BadRequest("model is required; name a route or an expert.", "model")
    model = fields["model"]
    if type(model) is not str:
        raise _wrong_type("model", "a string", model)
    if not model or len(model) > _MAX_MODEL_LENGTH or not model.isprintable():
        raise BadRequest(
            f"model must have 1 to {_MAX_MODEL_LENGTH} printable characters; name a route or an"
            " expert.",
            "model",
        )
    return model


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name)
    if value is not None and type(value) is not bool:
        raise _wrong_type(name, "true or false", value)
    return value is True


def _system_of(path: str, fields: Mapping[str, Any]) -> str:
    """Return the system prompt outside the messages."""
    if path == "responses":
        instructions = fields.get("instructions")
        return instructions if type(instructions) is str else ""
    return text_of(fields.get("system")) if path.startswith("messages") else ""


def _prompt_of(
    path: str, fields: Mapping[str, Any], routed: RoutingInput, system: str
) -> RoutedPrompt:
    name = _PROMPT_FIELD[path]
    value = fields.get(name)
    if path in _CHATS:
        if type(value) is not list:
            raise _wrong_type(name, "a list of messages", value)
        if not value:
            raise BadRequest(f"{name} must not be empty.", name)
        return prompt_of_messages(_objects(name, value), routed, system)
    if value is not None and type(value) is not str and type(value) is not list:
        raise _wrong_type(name, "a string or a list", value)
    if path != "responses":
        return prompt_of_texts(value, routed if path == "completions" else LAST)
    messages = [{"role": "user", "content": value}] if value else []
    if type(value) is list:
        messages = _objects(name, value)
    return prompt_of_messages(messages, routed, system)


def _objects(name: str, values: list[Any]) -> list[dict[str, Any]]:
    for index, value in enumerate(values):
        if type(value) is not dict:
            raise _wrong_type(f"{name}[{index}]", "an object", value)
    return values


def _count_fields(path: str, fields: Mapping[str, Any], prompt: RoutedPrompt) -> None:
    """Count the fields other than the prompt, except short ones that no expert reads as text."""
    for name, value in fields.items():
        if name in (_PROMPT_FIELD[path], "model"):
            continue
        try:
            text = value if type(value) is str else orjson.dumps(value).decode()
        except TypeError:
            raise _too_deep() from None
        if name in _COUNTED_FIELDS or len(text) > _SHORT_FIELD:
            prompt.count(text)
        else:
            prompt.uncounted += len(name) + len(text)


def _needs_of(fields: Mapping[str, Any], prompt: RoutedPrompt) -> frozenset[str]:
    needs = set(prompt.needs)
    if fields.get("tools") or fields.get("functions"):
        needs.add("tools")
    nested = (fields.get("text"), fields.get("output_config"))
    formats = [value.get("format") for value in nested if type(value) is dict]
    for form in (fields.get("response_format"), fields.get("output_format"), *formats):
        if type(form) is dict and form.get("type") in _JSON_FORMATS:
            needs.add("json")
    return frozenset(needs)


def _max_tokens(path: str, fields: Mapping[str, Any]) -> int | None:
    """Return the largest bound on the tokens of a choice, because experts use different fields.

    Fields of other paths are ignored, so that they cannot make a request look cheap.
    """
    values = [_whole_number(name, fields) for name in _MAX_TOKENS_FIELDS[path]]
    tokens = [number for number in values if number is not None]
    # llama.cpp prefers this field; other servers ignore it.
    if tokens and (number := _whole_number("n_predict", fields)) is not None:
        tokens.append(number)
    # Some servers treat a negative number as no bound.
    return None if not tokens or min(tokens) < 0 else max(tokens)


def _whole_number(name: str, fields: Mapping[str, Any]) -> int | None:
    """Return a field that bounds the bill, which must be a whole number.

    Some experts would read 10.0 or "10" as 10.
    """
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise _wrong_type(name, "a whole number", value)
    return value


def _choices(path: str, fields: Mapping[str, Any]) -> int:
    if path not in _CHOSEN:
        return 1
    choices = max(_whole_number("n", fields) or 1, _whole_number("best_of", fields) or 1, 1)
    prompt = fields.get("prompt") if path == "completions" else None
    # A list of numbers is one tokenized prompt.
    if type(prompt) is list and prompt and type(prompt[0]) is not int:
        choices *= len(prompt)
    return min(choices, _MAX_CHOICES)


def _conversation_of(
    path: str, fields: Mapping[str, Any], prompt: RoutedPrompt, system: str, salt: str
) -> tuple[bool, str | None]:
    """Return whether this is a first turn, and the digest of the conversation."""
    if path in ("completions", "embeddings"):
        return True, None
    name = _conversation_name(fields)
    if name is not None:
        return False, named_conversation(name, salt)
    if prompt.opening is None:
        return not prompt.has_answer, None
    user = fields.get("user")
    # A request that counts the tokens of a conversation belongs to that conversation.
    api = path.partition("/")[0] if path.startswith("messages") else path
    parts = [api, user if type(user) is str else "", system, *prompt.opening]
    return not prompt.has_answer, conversation_digest(parts, salt)


def _conversation_name(fields: Mapping[str, Any]) -> str | None:
    metadata = fields.get("metadata")
    conversation = fields.get("conversation")
    for name in (
        metadata.get("conversation_id") if type(metadata) is dict else None,
        conversation.get("id") if type(conversation) is dict else conversation,
        fields.get("previous_response_id"),
    ):
        if type(name) is str and name:
            return name
    return None
