"""Parse the body of a request: model, stream, tokens, needs; and replace the model in its bytes."""

from __future__ import annotations

import math
import re
from codecs import utf_8_decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from json import JSONDecodeError, JSONDecoder, dumps
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any, NamedTuple, NoReturn

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.decision.prompt import (
    LAST,
    LEFT_OUT,
    MAX_NUMBER,
    RoutedPrompt,
    RoutingInput,
    prompt_of_messages,
    prompt_of_texts,
    without_secret,
)
from mildroute.experts.anthropic import TranslationError, messages_to_chat
from mildroute.gateway.http.errors import APIError

__all__ = [
    "LARGE_BODY",
    "LENIENT",
    "STRICT",
    "BadRequest",
    "Member",
    "ParsedRequest",
    "conversation_digest",
    "decoder_for",
    "find_member",
    "named_conversation",
    "parse_messages",
    "parse_request",
    "shorten",
    "split_members",
]


# The members of a JSON object with their places in the text, so that one of them can be replaced
# and all others left as they came. ``msgspec.json.decode(body, type=dict[str, msgspec.Raw])`` takes
# 0.5 microseconds for a short chat instead of 5, but silently keeps the last of repeated members: a
# client could show the gateway one model and the expert another. Repeated members must be refused.


# Name, value, and where in the text the value begins and ends.
Member = tuple[str, Any, int, int]

_SPACE = r"[ \t\n\r]*"
_space = re.compile(_SPACE).match
_plain_name = re.compile(rf'"([^"\\\x00-\x1f]*)"{_SPACE}:{_SPACE}').match
_colon = re.compile(rf"{_SPACE}:{_SPACE}").match
_opening = re.compile(rf"(\{{){_SPACE}").match
_border = re.compile(rf"{_SPACE}([,}}]){_SPACE}").match


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _reject_repeated(members: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(members)
    if len(read) < len(members):
        raise _repeated([name for name, _ in members])
    return read


def _read_number(text: str) -> float:
    number = float(text) if len(text) <= MAX_NUMBER else math.inf
    if not math.isfinite(number):
        raise ValueError("a number of too many digits")
    return number


# Reads what every JSON reader reads in the same way: no NaN, no Infinity, and no name twice. Of two
# contents of a message an expert may read the one that was not counted.
_RULES: dict[str, Any] = {
    "parse_constant": _reject_constant,
    "parse_float": _read_number,
    "object_pairs_hook": _reject_repeated,
}
STRICT = JSONDecoder(**_RULES)

# The same value by value, so that other threads may run between them: 19 MB of strings took the
# other one 100 to 166 ms in one call.
_STEPWISE = JSONDecoder(**_RULES)
_STEPWISE.scan_once = py_make_scanner(_STEPWISE)  # type: ignore[attr-defined]
_MAX_IN_ONE_CALL = 1 << 21

# Reads NaN and Infinity, too, which some servers send.
LENIENT = JSONDecoder()


def decoder_for(text: str) -> JSONDecoder:
    """A strict decoder that does not stop other threads for long."""
    return STRICT if len(text) <= _MAX_IN_ONE_CALL else _STEPWISE


def split_members(
    text: str, at: int, decoder: JSONDecoder = STRICT, max_members: int = 1_000_000
) -> tuple[list[Member], int]:
    """Read the members of an object.

    Args:
        text: JSON.
        at: Where the first of them, or the closing brace, is looked for.
        decoder: Reads names and values.
        max_members: Members that are read; more are an error.

    Returns:
        The members in their order, repeated names included, and the place behind the closing brace.

    Raises:
        ValueError: This is no JSON.
        RecursionError: A value is nested too deeply.
    """
    members: list[Member] = []
    at = _space(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, start = _name_at(text, at, decoder)
        value, end = decoder.raw_decode(text, start)
        members.append((name, value, start, end))
        if len(members) > max_members:
            raise JSONDecodeError("Too many members", text, at)
        border = _border(text, end)
        if border is None:
            raise JSONDecodeError("Expecting ',' delimiter", text, end)
        if border[1] == "}":
            return members, border.end(1)
        at = border.end()


def find_member(text: str, at: int, name: str) -> int | None:
    """Where the value of a member begins; what follows it is not read.

    Args:
        text: JSON, which may be cut off behind the member.
        at: Where its object begins.
        name: Of the member.

    Returns:
        The place, or none if there is no such member, or no object.
    """
    try:
        border = _opening(text, at)
        while border is not None and border[1] != "}":
            found, start = _name_at(text, border.end(), LENIENT)
            if found == name:
                return start
            border = _border(text, LENIENT.raw_decode(text, start)[1])
    except (ValueError, RecursionError):
        pass
    return None


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
        model_span: Where in the body the value of ``model`` begins and ends, quotes included.
        needs: What an expert must be able to do: ``"tools"``, ``"vision"``, ``"json"``.
        tokens_in: Tokens of the request, estimated from its characters.
        tokens_out: Tokens that the client allows at most in one choice, or none.
        choices: Responses that are generated: ``n`` or ``best_of`` for each prompt.
        conversation: A digest that stays the same while a conversation continues, or none if there
            is none.
        previous_id: Where the id of the response that this one continues from
            (``previous_response_id``) begins and ends, and the id, or none.
        owner: The expert that gave that response, if its id tells, else none: no other one knows
            it.
        usage_option: Where ``stream_options`` that ask for the usage of a stream go in the body,
            and their bytes; none if the client asks for it itself, or there is none to ask for.
        logprobs_option: Where a request for the log-probabilities of a chat goes in the body, and
            its bytes; none if the client asks for them itself, or there are none to ask for.
        is_first_turn: Whether nothing was answered yet: who began with the same words before had
            another conversation, even if its digest is the same.
        is_tool_result: Whether it ends with the result of a tool, not with a message.
        original: The body of an Anthropic client, of which ``body`` is a translation, and where
            the value of its ``model`` begins and ends; none for other clients.
        untranslated: Its fields that change what is asked and that the translation lacks: then the
            path is ``"messages"``, and only experts of kind ``anthropic`` can serve it.
    """

    path: str
    model: str
    text: str
    body: bytes | bytearray = field(repr=False)
    model_span: tuple[int, int]
    is_stream: bool = False
    needs: frozenset[str] = frozenset()
    tokens_in: int = 0
    tokens_out: int | None = None
    choices: int = 1
    conversation: str | None = None
    previous_id: tuple[int, int, str] | None = None
    owner: str | None = None
    is_first_turn: bool = False
    usage_option: tuple[int, int, bytes] | None = None
    logprobs_option: tuple[int, int, bytes] | None = None
    is_tool_result: bool = False
    original: tuple[bytes | bytearray, tuple[int, int]] | None = field(default=None, repr=False)
    untranslated: tuple[str, ...] = ()

    @property
    def called_path(self) -> str:
        """The path that its client called, though it be served as another one."""
        return self.path if self.original is None else "messages"

    def original_for(self, model: str) -> list[bytes | memoryview]:
        """The request of an Anthropic client as it came, byte for byte, except for the model."""
        if self.original is None:
            raise ValueError("only a request of an Anthropic client has an original.")
        body, (start, end) = self.original
        view = memoryview(body)
        return [view[:start], dumps(model).encode(), view[end:]]

    def body_for(
        self, model: str, *, include_usage: bool = False, logprobs: bool = False
    ) -> list[bytes | memoryview]:
        """The request as it came, byte for byte, except for the model and a decoded id.

        In pieces, which are views of the body: a body of 19 MB was held three times otherwise.

        Args:
            model: Its new one.
            include_usage: Whether the usage of a stream is asked for, too.
            logprobs: Whether log-probabilities are asked for, too.
        """
        edits = [(*self.model_span, dumps(model).encode())]
        if self.owner is not None and self.previous_id is not None:
            start, end, previous_id = self.previous_id
            edits.append((start, end, dumps(previous_id).encode()))
        if include_usage and self.usage_option is not None:
            edits.append(self.usage_option)
        if logprobs and self.logprobs_option is not None:
            edits.append(self.logprobs_option)
        body = memoryview(self.body)
        pieces: list[bytes | memoryview] = []
        at = 0
        for start, end, new in sorted(edits):
            pieces += body[at:start], new
            at = end
        return [*pieces, body[at:]]


# Large bodies: their elements are counted before they are decoded, and of long strings only both
# ends are. Python's decoder makes 6 million objects of an 18 MB `[{},{},...]` in one call, which
# holds all threads for 1.3 to 2 seconds, and copies each string; neither a thread nor a faster
# decoder changes that. Here each step takes about a millisecond, and other threads may run between
# them.


# Bytes from which on a body is shortened, and parsed in a thread of its own.
LARGE_BODY = 1 << 16
_WINDOW = 1 << 14
# Windows of a string that is left whole.
_MAX_WINDOWS = 6
# Values in a large body: 200,000 take about 50 ms to decode, in one call.
_MAX_VALUES = 200_000
# The outer repeat is not possessive: before 3.11.5 Python keeps what a round that fails has read.
_string_part = re.compile(
    rb'[^"\\\x00-\x1f]*+(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])[^"\\\x00-\x1f]*+)*'
).match
_hide_escapes = re.compile(rb"\\.", re.DOTALL).sub


class ShortenedBody(NamedTuple):
    """A body without the middles of its long strings.

    Args:
        data: Its JSON.
        cuts: Places in it behind what was left out, and by how many bytes it is shorter there.
    """

    data: bytes | bytearray
    cuts: list[tuple[int, int]]

    def original(self, place: int) -> int:
        """Where in the body a place lies."""
        return place + sum(removed for at, removed in self.cuts if at <= place)


def shorten(body: bytes | bytearray) -> ShortenedBody:
    """Leave out the middles of long strings of a large body, and most of its white space.

    A small one stays as it is.

    Raises:
        BadRequest: It has too many values, or is not UTF-8.
    """
    if len(body) <= LARGE_BODY:
        return ShortenedBody(body, [])
    cutter = _Cutter(body)
    at = values = 0
    while at < len(body):
        between, end = _short_strings(body, at)
        values += between.count(b",") + between.count(b"[") + between.count(b"{")
        if values > _MAX_VALUES:
            raise BadRequest(
                f"a body over {LARGE_BODY:,} bytes must have at most {_MAX_VALUES:,} values, got"
                " more; send them in several requests."
            )
        if body[end : end + 1] == b'"':
            places = _places_in_string(body, end + 1)
            at = places[-1] + 1
            if len(places) > _MAX_WINDOWS:
                cutter.leave_out(places[1], places[-3], LEFT_OUT)
        else:
            if not between.strip(b" \t\n\r"):
                cutter.leave_out(at, end, b" ")
            at = end
    return cutter.shortened()


class _Cutter:
    def __init__(self, body: bytes | bytearray) -> None:
        self._body = body
        self._pieces: list[bytes | bytearray] = []
        self._cuts: list[tuple[int, int]] = []
        self._size = 0
        self._end = 0

    def leave_out(self, start: int, end: int, mark: bytes) -> None:
        """Put a mark, which may tell how many bytes are missing, in place of a part."""
        if b"%d" in mark:
            mark %= end - start
        self._pieces += self._body[self._end : start], mark
        self._size += start - self._end + len(mark)
        self._cuts.append((self._size, end - start - len(mark)))
        self._end = end

    def shortened(self) -> ShortenedBody:
        if not self._cuts:
            return ShortenedBody(self._body, [])
        return ShortenedBody(b"".join([*self._pieces, self._body[self._end :]]), self._cuts)


def _short_strings(body: bytes | bytearray, at: int) -> tuple[bytes, int]:
    """Read a window that begins outside of strings, up to a string that ends behind it.

    All its strings at once: one by one, 200,000 names took 1.3 seconds, now 30 ms.

    Returns:
        What stands between its strings, and where it ends: at the quote of a string, or outside.
    """
    window = body[at : at + _WINDOW]
    if b"\\" in window:
        window = _hide_escapes(b"xx", window)
    parts = window.split(b'"')
    end = at + len(window)
    if len(parts) % 2 == 0:
        end -= len(parts[-1]) + 1
    return b'"'.join(parts[::2]), end


def _places_in_string(body: bytes | bytearray, at: int) -> list[int]:
    """Places, a window apart, at which a string can be cut; the last is its end.

    What is no JSON ends it, too: it is reported by who decodes it.
    """
    places = [at]
    while True:
        end = _string_part(body, at, at + _WINDOW).end()  # type: ignore[union-attr]
        if len(places) > 1 or end == at + _WINDOW:
            end = at + _whole_characters(body, at, end)
        if end == at:
            return places
        places.append(end)
        if body[end : end + 1] == b'"':
            return places
        at = end


def _whole_characters(body: bytes | bytearray, start: int, end: int) -> int:
    """Bytes that hold whole characters; a last one may be cut by the window."""
    try:
        return utf_8_decode(body[start:end], "strict", end < start + _WINDOW)[1]
    except UnicodeDecodeError as error:
        raise _not_utf8(start + error.start) from None


# A request's body, read once: where the model stands in it, what it asks, and what it takes to
# answer.


_MAX_PART = 1 << 12
_SAMPLE = 1 << 10
_MAX_MODEL_LENGTH = 256
_MAX_SHOWN_NAME = 64
_MAX_MEMBERS = 10_000
_JSON_FORMATS = ("json_object", "json_schema")
_PROMPT_FIELD = {
    "chat/completions": "messages",
    "completions": "prompt",
    "responses": "input",
    "embeddings": "input",
}
_MAX_TOKENS_FIELDS = {
    "chat/completions": ("max_completion_tokens", "max_tokens"),
    "completions": ("max_tokens",),
    "responses": ("max_output_tokens",),
    "embeddings": (),
}
_MAX_CHOICES = 1 << 20
# Fields that some servers read in any spelling.
_EXACT_NAMES = frozenset(
    {"model", "n", "best_of", *(name for names in _MAX_TOKENS_FIELDS.values() for name in names)}
)
# Paths of responses with choices.
_CHOSEN = ("chat/completions", "completions")
# Characters of any other field, such as a suffix or a prediction, that are not worth counting.
_SHORT_FIELD = 256
_COUNTED_FIELDS = ("tools", "functions", "response_format", "text", "instructions")
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
        param: The field that is wrong, or none.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(400, message, param=param)


def parse_request(
    path: str, body: bytes | bytearray, salt: str = "", routed: RoutingInput = LAST
) -> ParsedRequest:
    """Parse what routing has to know of a request, and leave the rest to the expert.

    The text to route is the last user message that has text, unless ``routed`` says otherwise:
    most routers are trained on single queries. A conversation is recognized, in
    this order, by ``metadata.conversation_id``, by a response's ``conversation``, by its
    ``previous_response_id``, or by all messages up to and including the first of the user, which
    every turn sends again, together with ``user``. A request that holds no message of the
    assistant is a first turn.

    Args:
        path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
        body: As it came.
        salt: Whose request it is, such as the name of the client's key; goes into the digest of the
            conversation.
        routed: What of its messages the router reads.

    Raises:
        BadRequest: The body is not a JSON object with a ``model`` that can be replaced, or a field
            that is read has a wrong type.
    """
    if path not in _PROMPT_FIELD:
        raise APIError(
            404,
            f"the path must be one of {', '.join(_PROMPT_FIELD)}, under /v1/; this one is not"
            " served.",
        )
    short = shorten(body)
    text = _decoded(short.data)
    members = _members_of(text)
    fields = {name: value for name, value, _, _ in members}
    if len(fields) < len(members):
        raise _repeated([name for name, _, _, _ in members])
    model, place = _model_of(members)
    is_stream = _is_stream(fields)
    prompt = _prompt_of(path, fields, routed)
    _refuse_background(fields)
    _count_fields(path, text, members, prompt)
    if short.cuts:
        prompt.text = without_secret(prompt.text)
    is_first_turn, conversation = _conversation_of(path, fields, prompt, salt)
    span = _byte_span(short, text, place)
    return ParsedRequest(
        path=path,
        model=model,
        text=_encodable(short.data, prompt.text),
        body=body,
        model_span=span,
        is_stream=is_stream,
        needs=_needs_of(fields, prompt),
        tokens_in=prompt.estimate(),
        tokens_out=_max_tokens(path, fields),
        choices=_choices(path, fields),
        conversation=conversation,
        previous_id=_previous_id(short, text, members) if path == "responses" else None,
        is_first_turn=is_first_turn,
        usage_option=(
            _usage_option(short, text, members, span[1]) if is_stream and path in _CHOSEN else None
        ),
        logprobs_option=(
            _logprobs_option(short, text, members, span[1]) if path == "chat/completions" else None
        ),
        is_tool_result=prompt.is_tool_result,
    )


def parse_messages(
    body: bytes | bytearray, salt: str = "", routed: RoutingInput = LAST
) -> ParsedRequest:
    """Parse a request of an Anthropic client as the chat that it means.

    Args:
        body: As it came.
        salt: As for :func:`parse_request`.
        routed: As for :func:`parse_request`.

    Raises:
        BadRequest: As for :func:`parse_request`, or it cannot be translated.
    """
    if len(body) > LARGE_BODY:
        # Counts its values before they are decoded.
        shorten(body)
    text = _decoded(body)
    members = _members_of(text)
    fields = {name: value for name, value, _, _ in members}
    if len(fields) < len(members):
        raise _repeated([name for name, _, _, _ in members])
    _, place = _model_of(members)
    try:
        chat, untranslated = messages_to_chat(fields)
        chat_body = _chat_json(chat)
    except TranslationError as error:
        raise BadRequest(str(error), error.param) from None
    except RecursionError:
        raise _too_deep() from None
    parsed = parse_request("chat/completions", chat_body, salt, routed)
    # An expert of kind ``anthropic`` gets the original; what the chat lacks is counted, too.
    original = RoutedPrompt()
    original.count_all({name: value for name, value in fields.items() if name != "model"})
    tokens = max(parsed.tokens_in, original.estimate())
    changes: dict[str, Any] = {}
    if untranslated:
        tokens = max(tokens, len(body) // CHARACTERS_PER_TOKEN)
        changes = {"path": "messages", "untranslated": tuple(untranslated)}
    span = _byte_span(ShortenedBody(body, []), text, place)
    return replace(parsed, original=(body, span), tokens_in=tokens, **changes)


def _chat_json(chat: dict[str, Any]) -> bytes:
    """Without escapes that its client did not write: they would count as characters."""
    try:
        return dumps(chat, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        # Half a letter (a surrogate), which only an escape can name.
        return dumps(chat).encode()


def _decoded(body: bytes | bytearray) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise BadRequest(
            "the body must begin with its JSON object, got a byte order mark; send UTF-8 without"
            " one.",
        )
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(error.start) from None


def _not_utf8(place: int) -> BadRequest:
    return BadRequest(f"the body must be UTF-8, got a wrong byte at {place}; encode it as UTF-8.")


def _members_of(text: str) -> list[Member]:
    begin = len(text) - len(text.lstrip(" \t\n\r"))
    if text[begin : begin + 1] != "{":
        raise BadRequest(
            "the body must be a JSON object, got something else; send an object with a model."
        )
    try:
        members, end = split_members(text, begin + 1, decoder_for(text), max_members=_MAX_MEMBERS)
    except RecursionError:
        raise _too_deep() from None
    except JSONDecodeError as error:
        raise BadRequest(
            f"the body must be JSON, got an error at character {error.pos} ({error.msg}); send"
            " valid JSON.",
        ) from None
    except ValueError:
        raise BadRequest(
            "the body must be JSON, got NaN, Infinity or a number of too many digits; leave it"
            " out.",
        ) from None
    if text[end:].strip(" \t\n\r"):
        raise BadRequest(
            f"the body must be one JSON object, got more behind character {end}; send one request"
            " at a time.",
        )
    return members


def _too_deep() -> BadRequest:
    return BadRequest(
        "the body must not be nested too deeply, got more levels than can be read; send a flatter"
        " one."
    )


def _repeated(names: list[str]) -> BadRequest:
    seen: set[str] = set()
    repeated = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    shown = repeated if repeated.isprintable() and len(repeated) <= _MAX_SHOWN_NAME else "a field"
    return BadRequest(
        f"each field must be given once, got {shown} twice, which means different things to"
        " different readers.",
        shown,
    )


def _model_of(members: list[Member]) -> tuple[str, tuple[int, int]]:
    found: Member | None = None
    for member in members:
        if member[0] == "model":
            found = member
        elif member[0] not in _EXACT_NAMES and (name := member[0].lower()) in _EXACT_NAMES:
            # Some servers take names of fields for the same in any case; this one would choose the
            # model, or the size of the bill, behind our back.
            raise BadRequest(
                f"{name} must be written in small letters, got another spelling of it; leave that"
                " out.",
                name,
            )
    if found is None:
        raise BadRequest("model must be given, got none; name a route or an expert.", "model")
    model = found[1]
    if type(model) is not str:
        raise _wrong_type("model", "a string", model)
    if not model or len(model) > _MAX_MODEL_LENGTH or not model.isprintable():
        raise BadRequest(
            f"model must have 1 to {_MAX_MODEL_LENGTH} printable characters; name a route or an"
            " expert.",
            "model",
        )
    return model, (found[2], found[3])


def _byte_span(body: ShortenedBody, text: str, place: tuple[int, int]) -> tuple[int, int]:
    """Where in the body as it came a part of its decoded text lies."""
    start, end = place
    if len(body.data) != len(text):
        size = len(text[start:end].encode())
        start = len(text[:start].encode())
        end = start + size
    return body.original(start), body.original(end)


def _usage_option(
    body: ShortenedBody, text: str, members: list[Member], behind: int
) -> tuple[int, int, bytes] | None:
    for name, value, start, end in members:
        if name == "stream_options" and value is not None:
            # What is no object is refused by the expert.
            if type(value) is not dict or value.get("include_usage") is True:
                return None
            changed = _small_json(name, value | {"include_usage": True})
            return (*_byte_span(body, text, (start, end)), changed)
        if name == "stream_options":
            return (*_byte_span(body, text, (start, end)), b'{"include_usage":true}')
    return behind, behind, b',"stream_options":{"include_usage":true}'


def _small_json(name: str, value: Any) -> bytes:
    """The JSON of a field that is written again: of what is small none of its body is left out."""
    try:
        written = dumps(value).encode()
    except RecursionError:
        written = None
    if written is None or len(written) > _MAX_PART:
        raise BadRequest(
            f"{name} must have at most {_MAX_PART:,} characters and few levels; leave out what no"
            " expert reads.",
            name,
        )
    return written


def _logprobs_option(
    body: ShortenedBody, text: str, members: list[Member], behind: int
) -> tuple[int, int, bytes] | None:
    found = None
    for name, value, start, end in members:
        if name == "top_logprobs" and value is not None:
            return None
        if name == "logprobs":
            # What is neither true nor false is refused by the expert.
            if value is not None and value is not False:
                return None
            found = (*_byte_span(body, text, (start, end)), b"true")
    if found is not None:
        return found
    return behind, behind, b',"logprobs":true'


def _wrong_type(field: str, wanted: str, value: Any) -> BadRequest:
    return BadRequest(
        f"{field} must be {wanted}, got {_TYPE_NAMES.get(type(value), 'null')}.", field
    )


def _prompt_of(path: str, fields: Mapping[str, Any], routed: RoutingInput) -> RoutedPrompt:
    under = _PROMPT_FIELD[path]
    value = fields.get(under)
    if path == "chat/completions":
        if type(value) is not list or not value:
            raise (
                _wrong_type(under, "a list of messages", value)
                if value != []
                else BadRequest(f"{under} must not be empty.", under)
            )
        return _prompt_of_list(under, value, routed)
    instructions = fields.get("instructions")
    system = instructions if type(instructions) is str else ""
    if path == "responses" and type(value) is list:
        return _prompt_of_list(under, value, routed, system)
    if value is not None and type(value) is not str and type(value) is not list:
        raise _wrong_type(under, "a string or a list", value)
    if path == "responses":
        messages = [{"role": "user", "content": value}] if value else []
        return prompt_of_messages(messages, routed, system)
    return prompt_of_texts(value, routed if path == "completions" else LAST)


def _prompt_of_list(
    under: str, messages: list[Any], routed: RoutingInput, instructions: str = ""
) -> RoutedPrompt:
    for place, message in enumerate(messages):
        if type(message) is not dict:
            raise _wrong_type(f"{under}[{place}]", "an object", message)
    return prompt_of_messages(messages, routed, instructions)


def _count_fields(path: str, text: str, members: list[Member], prompt: RoutedPrompt) -> None:
    """Count what stands beside the prompt; few words under other names are not worth it."""
    for name, _, start, end in members:
        if name == _PROMPT_FIELD[path]:
            continue
        if name in _COUNTED_FIELDS or end - start > _SHORT_FIELD:
            prompt.count(text[start:end])
        else:
            prompt.uncounted += len(name) + end - start


def _encodable(body: bytes | bytearray, text: str) -> str:
    # By an escape JSON can name half a letter alone (a surrogate), which no encoder of ours can
    # take.
    return (
        text if text.isascii() or b"\\u" not in body else text.encode("utf-8", "replace").decode()
    )


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
    for form in (
        fields.get("response_format"),
        wording.get("format") if type(wording) is dict else None,
    ):
        if type(form) is dict and form.get("type") in _JSON_FORMATS:
            needs.add("json")
    return frozenset(needs)


def _max_tokens(path: str, fields: Mapping[str, Any]) -> int | None:
    """The largest of those that count on this path: experts differ in which one they obey.

    One that does not count here must not make a request look cheap.
    """
    found = [_whole_number(name, fields) for name in _MAX_TOKENS_FIELDS[path]]
    tokens = [number for number in found if number is not None]
    # llama.cpp obeys this one first; other servers do not know it.
    if tokens and (number := _whole_number("n_predict", fields)) is not None:
        tokens.append(number)
    # To some servers a negative number means no bound.
    return None if not tokens or min(tokens) < 0 else max(tokens)


def _whole_number(name: str, fields: Mapping[str, Any]) -> int | None:
    """A field that bounds the bill: experts that read 10.0 or "10" as 10 must not pass it by."""
    value = fields.get(name)
    if value is not None and type(value) is not int:
        raise _wrong_type(name, "a whole number", value)
    return value


def _refuse_background(fields: Mapping[str, Any]) -> None:
    if fields.get("background"):
        raise BadRequest(
            "background must be false or left out: the gateway would never see what such a response"
            " costs.",
            "background",
        )


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
    path: str, fields: Mapping[str, Any], prompt: RoutedPrompt, salt: str
) -> tuple[bool, str | None]:
    if path in ("completions", "embeddings"):
        return True, None
    name = _name_of(fields)
    if name is not None:
        return False, named_conversation(name, salt)
    if prompt.opening is None:
        return not prompt.has_answer, None
    owner, instructions = fields.get("user"), fields.get("instructions")
    parts = [
        path,
        owner if type(owner) is str else "",
        instructions if type(instructions) is str else "",
        *prompt.opening,
    ]
    return not prompt.has_answer, conversation_digest(parts, salt)


def _previous_id(
    body: ShortenedBody, text: str, members: list[Member]
) -> tuple[int, int, str] | None:
    for name, value, start, end in members:
        if name == "previous_response_id" and type(value) is str and value:
            return (*_byte_span(body, text, (start, end)), value)
    return None


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


def conversation_digest(parts: Iterable[str], salt: str = "") -> str:
    """A short name for what a conversation began with.

    Args:
        parts: What it began with; where one part ends and the next begins counts. Of parts over
            4,096 characters the length, the begin, the middle and the end are taken.
        salt: Whose conversation it is, such as the name of the client's key: the same words of two
            clients are two conversations.

    Returns:
        32 hexadecimal digits.
    """
    data = [_sample(part).encode("utf-8", "surrogatepass") for part in (salt, *parts)]
    return blake2b(
        b"".join([b"%d:%b" % (len(part), part) for part in data]), digest_size=16
    ).hexdigest()


def _sample(part: str) -> str:
    if len(part) <= _MAX_PART:
        return part
    # The same in every process.
    part = without_secret(part)
    # Pictures and whole books: their length and three places distinguish them, and megabytes need
    # not be hashed while others wait.
    middle = len(part) // 2
    return f"{len(part)}:{part[:_SAMPLE]}{part[middle : middle + _SAMPLE]}{part[-_SAMPLE:]}"


def named_conversation(name: str, salt: str = "") -> str:
    """The digest of a conversation that has a name.

    From a header, ``metadata.conversation_id``, or an earlier answer's id.
    """
    return conversation_digest(("named", name), salt)
