"""Parse the body of a request: model, stream, tokens, needs; and replace the model in its bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from json import JSONDecodeError, JSONDecoder
from typing import Any, NoReturn

from mildroute.exceptions import MildrouteError
from mildroute.serving.http.prompt import RoutedPrompt, prompt_of_messages, prompt_of_texts
from mildroute.serving.routing.affinity import conversation_digest, named_conversation

__all__ = ["LENIENT", "STRICT", "BadRequestError", "Member", "ParsedRequest", "read_request", "split_members"]


# The members of a JSON object with their places in the text, so that one of them can be replaced
# and all others left as they came.


Member = tuple[str, Any, int, int]
"""Name, value, and where in the text the value begins and ends."""

_SPACE = r"[ \t\n\r]*"
_space = re.compile(_SPACE).match
_plain_name = re.compile(rf'"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE}').match
_colon = re.compile(rf"{_SPACE}:{_SPACE}").match
_border = re.compile(rf"{_SPACE}([,}}]){_SPACE}").match


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


STRICT = JSONDecoder(parse_constant=_refuse)
"""Reads what every JSON reader can read: no NaN, no Infinity."""

LENIENT = JSONDecoder()
"""Reads NaN and Infinity, too, which some servers send."""


def split_members(text: str, at: int, decoder: JSONDecoder = STRICT, most: int = 1_000_000) -> tuple[list[Member], int]:
    """Read the members of an object.

    Args:
        text: JSON.
        at: Where the first of them, or the closing brace, is looked for.
        decoder: Reads names and values.
        most: Members that are read; more are an error.

    Returns:
        The members in their order, repeated names included, and the place behind the closing brace.

    Raises:
        ValueError: This is no JSON.
        RecursionError: A value is nested too deeply.

    Example:
        >>> split_members('{"model": "m", "n": [1]}', 1)
        ([('model', 'm', 10, 13), ('n', [1], 20, 23)], 24)
    """
    members: list[Member] = []
    at = _space(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, start = _name_at(text, at, decoder)
        value, end = decoder.raw_decode(text, start)
        members.append((name, value, start, end))
        if len(members) > most:
            raise JSONDecodeError("Too many members", text, at)
        border = _border(text, end)
        if border is None:
            raise JSONDecodeError("Expecting ',' delimiter", text, end)
        if border[1] == "}":
            return members, border.end(1)
        at = border.end()


def _name_at(text: str, at: int, decoder: JSONDecoder) -> tuple[str, int]:
    """A name, and where its value begins."""
    plain = _plain_name(text, at)
    if plain is not None:
        return plain[1], plain.end()
    if text[at : at + 1] != '"':
        raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    name, at = decoder.raw_decode(text, at)
    colon = _colon(text, at)
    if colon is None:
        raise JSONDecodeError("Expecting ':' delimiter", text, at)
    return name, colon.end()


# What a client asks, as far as routing has to know.


@dataclass(frozen=True)
class ParsedRequest:
    """One request.

    Args:
        path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
        model: What stands under ``model``: a route, or the name of an expert.
        text: What the router reads.
        body: The request as it came.
        model_at: Where in the body the value of ``model`` begins and ends, quotes included.
        is_stream: Whether the answer is wanted in pieces.
        needs: What an expert must be able to do: ``"tools"``, ``"vision"``, ``"json"``.
        tokens_in: Tokens of the request, at four characters a token.
        tokens_out: Tokens that the client allows at most, or none.
        conversation: A digest that stays the same while a conversation goes on, or none where there is none.
        follows: Digest of the response that a response goes on from (``previous_response_id``), which only who gave it knows, or none.
        is_first_turn: Whether nothing was answered yet: who began with the same words before had another conversation, even if its
            digest is the same.

    Example:
        >>> parsed = ParsedRequest("chat/completions", "mildroute", "Hi", b'{"model":"mildroute"}', (9, 20))
        >>> parsed.body_for("small-1")
        b'{"model":"small-1"}'
    """

    path: str
    model: str
    text: str
    body: bytes = field(repr=False)
    model_at: tuple[int, int]
    is_stream: bool = False
    needs: frozenset[str] = frozenset()
    tokens_in: int = 0
    tokens_out: int | None = None
    conversation: str | None = None
    follows: str | None = None
    is_first_turn: bool = False

    def body_for(self, model: str) -> bytes:
        """The request as it came, byte for byte, but for the model."""
        import json

        start, end = self.model_at
        return self.body[:start] + json.dumps(model).encode() + self.body[end:]


# A request's body, read once: where the model stands in it, what it asks, and what it takes to
# answer.


_LONGEST_MODEL = 256
_LONGEST_NAME = 64
_MOST_MEMBERS = 10_000
_MOST_MESSAGES = 100_000
_JSON_FORMATS = ("json_object", "json_schema")
_PROMPT_UNDER = {"chat/completions": "messages", "completions": "prompt", "responses": "input", "embeddings": "input"}
_COUNTED = ("tools", "functions", "response_format", "text", "instructions")
_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


class BadRequestError(MildrouteError):
    """A client's request that cannot be answered, whoever were asked.

    Args:
        status: Of the HTTP answer.
        message: The rule, what broke it and the way out; never a part of what the client sent but names of fields.
        param: The field that is wrong, or none.

    Example:
        >>> error = BadRequestError(400, "model must be a string, got a number; name a route or an expert.", "model")
        >>> error.status, error.param, str(error)
        (400, 'model', 'model must be a string, got a number; name a route or an expert.')
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def read_request(path: str, body: bytes, salt: str = "") -> ParsedRequest:
    """Read what routing has to know of a request, and leave the rest to whoever answers it.

    The text to route is the last user message that has text; other messages and the system prompt are not read, because routers are
    trained on single queries. A conversation is recognized, in this order, by ``metadata.conversation_id``, by a response's
    ``conversation``, by its ``previous_response_id`` (keep :func:`~mildroute.serving.routing.affinity.named_conversation` of an answer's
    id for this), or by all that was said up to and including the first user message, which every turn sends again, together with
    ``user``. A request that holds no answer yet is a first turn.

    Args:
        path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
        body: As it came.
        salt: Whose request it is, such as the name of the client's key; goes into the digest of the conversation.

    Returns:
        What is asked.

    Raises:
        BadRequestError: The body is not a JSON object with a ``model`` that can be replaced, or a field that is read has a wrong type.

    Example:
        >>> parsed = read_request("chat/completions", b'{"model":"mildroute","messages":[{"role":"user","content":"Hi"}],"stream":true}')
        >>> parsed.model, parsed.text, parsed.is_stream, parsed.is_first_turn
        ('mildroute', 'Hi', True, True)
    """
    if path not in _PROMPT_UNDER:
        raise BadRequestError(404, f"the path must be one of {', '.join(_PROMPT_UNDER)}, under /v1/; this one is not served.")
    text = _decoded(body)
    members = _members_of(text)
    fields = {name: value for name, value, _, _ in members}
    if len(fields) < len(members):
        raise _repeated([name for name, _, _, _ in members])
    model, place = _model_of(members)
    prompt = _prompt_of(path, fields)
    is_first_turn, conversation = _conversation_of(path, fields, prompt, salt)
    return ParsedRequest(
        path=path,
        model=model,
        text=_encodable(body, prompt.text),
        body=body,
        model_at=_in_bytes(body, text, place),
        is_stream=_is_stream(fields),
        needs=_needs_of(fields, prompt),
        tokens_in=prompt.estimate(sum(end - start for name, _, start, end in members if name in _COUNTED)),
        tokens_out=_most_tokens(fields),
        conversation=conversation,
        follows=_followed(fields, salt) if path == "responses" else None,
        is_first_turn=is_first_turn,
    )


def _decoded(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadRequestError(400, "the body must begin with its JSON object, got a byte order mark; send UTF-8 without one.")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadRequestError(400, f"the body must be UTF-8, got a wrong byte at {error.start}; encode it as UTF-8.") from None


def _members_of(text: str) -> list[Member]:
    begin = len(text) - len(text.lstrip(" \t\n\r"))
    if text[begin : begin + 1] != "{":
        raise BadRequestError(400, "the body must be a JSON object, got something else; send an object with a model.")
    try:
        members, end = split_members(text, begin + 1, most=_MOST_MEMBERS)
    except RecursionError:
        raise BadRequestError(
            400, "the body must not be nested too deeply, got more levels than can be read; send a flatter one."
        ) from None
    except JSONDecodeError as error:
        raise BadRequestError(
            400, f"the body must be JSON, got an error at character {error.pos} ({error.msg}); send valid JSON."
        ) from None
    except ValueError:
        raise BadRequestError(400, "the body must be JSON, got NaN, Infinity or a number of too many digits; leave it out.") from None
    if text[end:].strip(" \t\n\r"):
        raise BadRequestError(400, f"the body must be one JSON object, got more behind character {end}; send one request at a time.")
    return members


def _repeated(names: list[str]) -> BadRequestError:
    seen: set[str] = set()
    repeated = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    shown = repeated if repeated.isprintable() and len(repeated) <= _LONGEST_NAME else "a field"
    return BadRequestError(
        400, f"each field must be given once, got {shown} twice, which means different things to different readers.", shown
    )


def _model_of(members: list[Member]) -> tuple[str, tuple[int, int]]:
    found: Member | None = None
    for member in members:
        if member[0] == "model":
            found = member
        elif len(member[0]) == 5 and member[0].lower() == "model":
            # Some servers take names of fields for the same in any case; this one would choose the model behind our back.
            raise BadRequestError(400, "model must be written in small letters, got another spelling of it; leave that out.", "model")
    if found is None:
        raise BadRequestError(400, "model must be given, got none; name a route or an expert.", "model")
    model = found[1]
    if type(model) is not str:
        raise _wrong_type("model", "a string", model)
    if not model or len(model) > _LONGEST_MODEL or not model.isprintable():
        raise BadRequestError(400, f"model must have 1 to {_LONGEST_MODEL} printable characters; name a route or an expert.", "model")
    return model, (found[2], found[3])


def _in_bytes(body: bytes, text: str, place: tuple[int, int]) -> tuple[int, int]:
    start, end = place
    if len(body) == len(text):
        return start, end
    before = len(text[:start].encode())
    return before, before + len(text[start:end].encode())


def _wrong_type(field: str, wanted: str, value: Any) -> BadRequestError:
    return BadRequestError(400, f"{field} must be {wanted}, got {_WORDS.get(type(value), 'null')}.", field)


def _prompt_of(path: str, fields: Mapping[str, Any]) -> RoutedPrompt:
    under = _PROMPT_UNDER[path]
    value = fields.get(under)
    if path == "chat/completions":
        if type(value) is not list or not value:
            raise (
                _wrong_type(under, "a list of messages", value)
                if value != []
                else BadRequestError(400, f"{under} must not be empty.", under)
            )
        return _prompt_of_list(under, value)
    if path == "responses" and type(value) is list:
        return _prompt_of_list(under, value)
    if value is not None and type(value) is not str and type(value) is not list:
        raise _wrong_type(under, "a string or a list", value)
    if path == "responses":
        return prompt_of_messages([{"role": "user", "content": value}] if value else [])
    return prompt_of_texts(value)


def _prompt_of_list(under: str, messages: list[Any]) -> RoutedPrompt:
    size = len(messages)
    for place, message in enumerate(messages):
        if type(message) is not dict:
            raise _wrong_type(f"{under}[{place}]", "an object", message)
        content = message.get("content")
        size += len(content) if type(content) is list else 0
    if size > _MOST_MESSAGES:
        # Each takes a microsecond during which nobody else is served, and a body has room for millions of empty ones.
        raise BadRequestError(400, f"{under} must have at most {_MOST_MESSAGES:,} messages and parts, got {size:,}; send fewer.", under)
    return prompt_of_messages(messages)


def _encodable(body: bytes, text: str) -> str:
    # By an escape JSON can name half a letter alone (a surrogate), which no encoder of ours can take.
    return text if text.isascii() or b"\\u" not in body else text.encode("utf-8", "replace").decode()


def _is_stream(fields: Mapping[str, Any]) -> bool:
    stream = fields.get("stream")
    if stream is not None and type(stream) is not bool:
        raise _wrong_type("stream", "true or false", stream)
    return stream is True


def _needs_of(fields: Mapping[str, Any], prompt: RoutedPrompt) -> frozenset[str]:
    needs = prompt.needs
    if fields.get("tools") or fields.get("functions"):
        needs.add("tools")
    wording = fields.get("text")
    for form in (fields.get("response_format"), wording.get("format") if type(wording) is dict else None):
        if type(form) is dict and form.get("type") in _JSON_FORMATS:
            needs.add("json")
    return frozenset(needs)


def _most_tokens(fields: Mapping[str, Any]) -> int | None:
    for name in ("max_completion_tokens", "max_output_tokens", "max_tokens"):
        most = fields.get(name)
        if type(most) is int and most >= 0:
            return most
    return None


def _conversation_of(path: str, fields: Mapping[str, Any], prompt: RoutedPrompt, salt: str) -> tuple[bool, str | None]:
    if path in ("completions", "embeddings"):
        return True, None
    name = _name_of(fields)
    if name is not None:
        return False, named_conversation(name, salt)
    if prompt.opening is None:
        return not prompt.has_answer, None
    owner, instructions = fields.get("user"), fields.get("instructions")
    parts = [path, owner if type(owner) is str else "", instructions if type(instructions) is str else "", *prompt.opening]
    return not prompt.has_answer, conversation_digest(parts, salt)


def _followed(fields: Mapping[str, Any], salt: str) -> str | None:
    name = fields.get("previous_response_id")
    return named_conversation(name, salt) if type(name) is str and name else None


def _name_of(fields: Mapping[str, Any]) -> str | None:
    metadata, conversation = fields.get("metadata"), fields.get("conversation")
    for name in (
        metadata.get("conversation_id") if type(metadata) is dict else None,
        conversation.get("id") if type(conversation) is dict else conversation,
        fields.get("previous_response_id"),
    ):
        if type(name) is str and name:
            return name
    return None
