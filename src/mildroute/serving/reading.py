"""A request's body, read once: where the model stands in it, what it asks, and what it takes to answer."""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any

from mildroute.errors import MildrouteError
from mildroute.serving.asked import Asked
from mildroute.serving.conversations import conversation_digest, named_conversation
from mildroute.serving.json_members import Member, read_members
from mildroute.serving.prompts import Prompt, prompt_of_messages, prompt_of_texts

__all__ = ["RequestError", "read_request"]

_LONGEST_MODEL = 256
_LONGEST_NAME = 64
_MOST_MEMBERS = 10_000
_MOST_MESSAGES = 100_000
_JSON_FORMATS = ("json_object", "json_schema")
_PROMPT_UNDER = {"chat/completions": "messages", "completions": "prompt", "responses": "input", "embeddings": "input"}
_COUNTED = ("tools", "functions", "response_format", "text", "instructions")
_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


class RequestError(MildrouteError):
    """A client's request that cannot be answered, whoever were asked.

    Args:
        status: Of the HTTP answer.
        message: The rule, what broke it and the way out; never a part of what the client sent but names of fields.
        param: The field that is wrong, or none.

    Example:
        >>> error = RequestError(400, "model must be a string, got a number; name a route or an expert.", "model")
        >>> error.status, error.param, str(error)
        (400, 'model', 'model must be a string, got a number; name a route or an expert.')
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def read_request(path: str, body: bytes, salt: str = "") -> Asked:
    """Read what routing has to know of a request, and leave the rest to whoever answers it.

    The text to route is the last user message that has text; other messages and the system prompt are not read, because routers are
    trained on single queries. A conversation is recognised, in this order, by ``metadata.conversation_id``, by a response's
    ``conversation``, by its ``previous_response_id`` (keep :func:`~mildroute.serving.conversations.named_conversation` of an answer's
    id for this), or by all that was said up to and including the first user message, which every turn sends again, together with
    ``user``. A request that holds no answer yet is a first turn.

    Args:
        path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
        body: As it came.
        salt: Whose request it is, such as the name of the client's key; goes into the digest of the conversation.

    Returns:
        What is asked.

    Raises:
        RequestError: The body is not a JSON object with a ``model`` that can be replaced, or a field that is read has a wrong type.

    Example:
        >>> asked = read_request("chat/completions", b'{"model":"mildroute","messages":[{"role":"user","content":"Hi"}],"stream":true}')
        >>> asked.model, asked.text, asked.is_stream, asked.is_first_turn
        ('mildroute', 'Hi', True, True)
    """
    if path not in _PROMPT_UNDER:
        raise RequestError(404, f"the path must be one of {', '.join(_PROMPT_UNDER)}, under /v1/; this one is not served.")
    text = _decoded(body)
    members = _members_of(text)
    fields = {name: value for name, value, _, _ in members}
    if len(fields) < len(members):
        raise _repeated([name for name, _, _, _ in members])
    model, place = _model_of(members)
    prompt = _prompt_of(path, fields)
    is_first_turn, conversation = _conversation_of(path, fields, prompt, salt)
    return Asked(
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
        raise RequestError(400, "the body must begin with its JSON object, got a byte order mark; send UTF-8 without one.")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(400, f"the body must be UTF-8, got a wrong byte at {error.start}; encode it as UTF-8.") from None


def _members_of(text: str) -> list[Member]:
    begin = len(text) - len(text.lstrip(" \t\n\r"))
    if text[begin : begin + 1] != "{":
        raise RequestError(400, "the body must be a JSON object, got something else; send an object with a model.")
    try:
        members, end = read_members(text, begin + 1, most=_MOST_MEMBERS)
    except RecursionError:
        raise RequestError(400, "the body must not be nested too deeply, got more levels than can be read; send a flatter one.") from None
    except JSONDecodeError as error:
        raise RequestError(400, f"the body must be JSON, got an error at character {error.pos} ({error.msg}); send valid JSON.") from None
    except ValueError:
        raise RequestError(400, "the body must be JSON, got NaN, Infinity or a number of too many digits; leave it out.") from None
    if text[end:].strip(" \t\n\r"):
        raise RequestError(400, f"the body must be one JSON object, got more behind character {end}; send one request at a time.")
    return members


def _repeated(names: list[str]) -> RequestError:
    seen: set[str] = set()
    repeated = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    shown = repeated if repeated.isprintable() and len(repeated) <= _LONGEST_NAME else "a field"
    return RequestError(400, f"each field must be given once, got {shown} twice, which means different things to different readers.", shown)


def _model_of(members: list[Member]) -> tuple[str, tuple[int, int]]:
    found: Member | None = None
    for member in members:
        if member[0] == "model":
            found = member
        elif len(member[0]) == 5 and member[0].lower() == "model":
            # Some servers take names of fields for the same in any case; this one would choose the model behind our back.
            raise RequestError(400, "model must be written in small letters, got another spelling of it; leave that out.", "model")
    if found is None:
        raise RequestError(400, "model must be given, got none; name a route or an expert.", "model")
    model = found[1]
    if type(model) is not str:
        raise _wrong_type("model", "a string", model)
    if not model or len(model) > _LONGEST_MODEL or not model.isprintable():
        raise RequestError(400, f"model must have 1 to {_LONGEST_MODEL} printable characters; name a route or an expert.", "model")
    return model, (found[2], found[3])


def _in_bytes(body: bytes, text: str, place: tuple[int, int]) -> tuple[int, int]:
    start, end = place
    if len(body) == len(text):
        return start, end
    before = len(text[:start].encode())
    return before, before + len(text[start:end].encode())


def _wrong_type(field: str, wanted: str, value: Any) -> RequestError:
    return RequestError(400, f"{field} must be {wanted}, got {_WORDS.get(type(value), 'null')}.", field)


def _prompt_of(path: str, fields: Mapping[str, Any]) -> Prompt:
    under = _PROMPT_UNDER[path]
    value = fields.get(under)
    if path == "chat/completions":
        if type(value) is not list or not value:
            raise (
                _wrong_type(under, "a list of messages", value) if value != [] else RequestError(400, f"{under} must not be empty.", under)
            )
        return _prompt_of_list(under, value)
    if path == "responses" and type(value) is list:
        return _prompt_of_list(under, value)
    if value is not None and type(value) is not str and type(value) is not list:
        raise _wrong_type(under, "a string or a list", value)
    if path == "responses":
        return prompt_of_messages([{"role": "user", "content": value}] if value else [])
    return prompt_of_texts(value)


def _prompt_of_list(under: str, messages: list[Any]) -> Prompt:
    size = len(messages)
    for place, message in enumerate(messages):
        if type(message) is not dict:
            raise _wrong_type(f"{under}[{place}]", "an object", message)
        content = message.get("content")
        size += len(content) if type(content) is list else 0
    if size > _MOST_MESSAGES:
        # Each takes a microsecond during which nobody else is served, and a body has room for millions of empty ones.
        raise RequestError(400, f"{under} must have at most {_MOST_MESSAGES:,} messages and parts, got {size:,}; send fewer.", under)
    return prompt_of_messages(messages)


def _encodable(body: bytes, text: str) -> str:
    # By an escape JSON can name half a letter alone (a surrogate), which no encoder of ours can take.
    return text if text.isascii() or b"\\u" not in body else text.encode("utf-8", "replace").decode()


def _is_stream(fields: Mapping[str, Any]) -> bool:
    stream = fields.get("stream")
    if stream is not None and type(stream) is not bool:
        raise _wrong_type("stream", "true or false", stream)
    return stream is True


def _needs_of(fields: Mapping[str, Any], prompt: Prompt) -> frozenset[str]:
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


def _conversation_of(path: str, fields: Mapping[str, Any], prompt: Prompt, salt: str) -> tuple[bool, str | None]:
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
