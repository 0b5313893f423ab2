"""Parse the body of a request: its model, the text to route, what it needs and may cost.

A body is decoded once, to a dict that is changed and serialized again for the expert. What was
counted is therefore what the expert reads: a name that stands twice has one value from here on.
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

__all__ = [
    "PATHS",
    "BadRequest",
    "ParsedRequest",
    "parse_request",
    "read_object",
]

# Objects and lists of a body. Each takes 20 times its bytes once it is decoded.
_MAX_CONTAINERS = 200_000
# Decoding holds the interpreter: four million numbers would stop all requests for 0.2 s. A text
# with so many commas is longer than any model reads.
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
# Characters of any other field, such as a suffix or a prediction, that are not worth counting.
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
    """A body that no expert could serve.

    Args:
        message: The rule, what broke it and the way out; of what the client sent, only names of
            fields.
        param: The field that is wrong, or ``None``.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, message, param=param)


@dataclass(frozen=True)
class ParsedRequest:
    """A request as far as routing has to know it.

    Args:
        path: One of :data:`PATHS`.
        model: What stands under ``model``: a route, or the name of an expert.
        text: The text to route.
        fields: The decoded body.
        size: Bytes of the body.
        is_stream: Whether the client wants a stream.
        needs: What an expert must be able to do: ``"tools"``, ``"vision"``, ``"json"``.
        tokens_in: Tokens of the request, estimated from its characters.
        tokens_out: Tokens that the client allows at most in one choice, or ``None``.
        choices: Responses that are generated: ``n`` or ``best_of`` for each prompt.
        conversation: A digest that stays the same while a conversation continues, or ``None``.
        owner: The expert that gave the response which this request continues, or ``None``. No other
            expert knows that response.
        is_first_turn: Whether nothing was answered yet: who began with the same words before had
            another conversation, even if its digest is the same.
        is_tool_result: Whether the request ends with the result of a tool, not with a message.
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
        """The id of the response that this request continues, or ``None``."""
        value = self.fields.get("previous_response_id") if self.path == "responses" else None
        return value if isinstance(value, str) and value else None

    @property
    def lacks_usage(self) -> bool:
        """Return whether the client wants a stream and did not ask for its usage."""
        options = self.fields.get("stream_options")
        if not self.is_stream or self.path not in _CHOSEN:
            return False
        # Options that are no object are refused by the expert.
        return options is None or (
            isinstance(options, dict) and options.get("include_usage") is not True
        )

    def continues(self, response_id: str, owner: str) -> ParsedRequest:
        """Return the request with the id by which the owner knows its response."""
        return replace(
            self, fields={**self.fields, "previous_response_id": response_id}, owner=owner
        )

    def body_for(self, model: str, *, include_usage: bool = False, logprobs: bool = False) -> bytes:
        """Return the body for an expert.

        Args:
            model: Name of the model at the expert.
            include_usage: Whether to ask for the usage of a stream whose client did not.
            logprobs: Whether to ask for log-probabilities.

        Raises:
            BadRequest: The body is nested too deeply to be written.
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
        BadRequest: The body is something else, or has too many objects, lists and values.
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
    """Read what routing has to know of a request, and leave the rest to the expert.

    The text to route is the last user message that has text, unless ``routed`` says otherwise: most
    routers are trained on single queries. A conversation is recognized, in this order, by
    ``metadata.conversation_id``, by a response's ``conversation``, by its ``previous_response_id``,
    or by all messages up to and including the first of the user, which every turn sends again,
    together with ``user``. A request that holds no message of the assistant is a first turn.

    Args:
        path: One of :data:`PATHS`.
        fields: The decoded body.
        salt: Whose request it is, such as the name of the client's key; goes into the digest of the
            conversation.
        routed: What of the messages the router reads.
        size: Bytes of the body.

    Raises:
        BadRequest: The body has no ``model``, or a field that is read has a wrong type.
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
            "background must be false or left out: the gateway would never see what such a response"
            " costs.",
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
        "the body must not be nested too deeply, got more levels than can be written; send a"
        " flatter one."
    )


def _wrong_type(name: str, expected: str, value: Any) -> BadRequest:
    actual = _TYPE_NAMES.get(type(value), "null")
    return BadRequest(f"{name} must be {expected}, got {actual}.", name)


def _model_of(fields: Mapping[str, Any]) -> str:
    for spelling in fields:
        name = spelling.lower()
        if name in _EXACT_NAMES and spelling not in _EXACT_NAMES:
            # Some servers take names of fields for the same in any case; this one would choose the
            # model, or the size of the bill, behind our back.
            raise BadRequest(
                f"{name} must be written in small letters, got another spelling of it; leave that"
                " out.",
                name,
            )
    if "model" not in fields:
        raise BadRequest("model must be given, got none; name a route or an expert.", "model")
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
    """Return the system prompt that stands beside the messages."""
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
    """Count what stands beside the prompt; a few words under other names are not worth it."""
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
    """Return the largest of the bounds that count on this path: experts differ in which they obey.

    A field that does not count here must not make a request look cheap.
    """
    values = [_whole_number(name, fields) for name in _MAX_TOKENS_FIELDS[path]]
    tokens = [number for number in values if number is not None]
    # llama.cpp obeys this one first; other servers do not know it.
    if tokens and (number := _whole_number("n_predict", fields)) is not None:
        tokens.append(number)
    # To some servers a negative number means no bound.
    return None if not tokens or min(tokens) < 0 else max(tokens)


def _whole_number(name: str, fields: Mapping[str, Any]) -> int | None:
    """Return a field that bounds the bill.

    An expert that reads 10.0 or "10" as 10 must not get past the bound.
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
    # A list of numbers is one prompt in tokens.
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
    # Counting the tokens of a conversation is a part of it.
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
