"""Token usage of responses, and their ids, read and replaced while they pass."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.gateway.http.body import LENIENT, find_member, split_members

__all__ = [
    "ResponseIdFilter",
    "StreamUsageParser",
    "TokenUsage",
    "UsageFilter",
    "decode_response_id",
    "encode_response_id",
    "parse_usage",
    "without_logprobs",
]


_KEY = b'"usage"'
_MAX_LOOKS = 64
_MAX_DEPTH = 2
_MAX_LINE = 1 << 16
_HEAD = 512
_MAX_TOKENS = 1 << 40
# Texts that experts generate, in the deltas of chats and completions and of responses.
_texts = re.compile(
    rb'"(content|text|reasoning_content|reasoning|refusal|arguments|delta)" ?: ?"'
    rb'((?:[^"\\]|\\.)*+)"',
    re.DOTALL,
).findall
_CUT = b"\r\n\r"
_border = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)").finditer
_has_usage = re.compile(rb'"usage"[ \t]*:[ \t]*\{').search
_opening = re.compile(r"\[\s*\{\s*").match
_next_choice = re.compile(r"\s*,\s*\{\s*").match
_comma = re.compile(r"\s*,\s*").match
_is_done = re.compile(rb"^data: ?\[DONE\][ \t]*$", re.MULTILINE).search
_done_line = re.compile(rb"^data: ?\[DONE\]", re.MULTILINE).search
_has_end = re.compile(rb"response\.(?:completed|incomplete|failed)").search
_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
_FAILURES = (b"response.failed", b"error")


class TokenUsage(NamedTuple):
    """Tokens of a request and its response.

    Attributes:
        tokens_in: Of the request, or none if not reported.
        tokens_out: Of the response, or none if not known.
        cached_tokens: Those of the request that came from the provider's prompt cache.
        written_tokens: Those of the request that were written to it.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int = 0
    written_tokens: int = 0


def parse_usage(body: bytes) -> TokenUsage | None:
    """Tokens of the request and of the response, as a complete response reports them.

    Only the end of the body is read, from its last ``usage`` on, because what stands before can be
    long: vectors, for one. Fields of the same name further inside, such as in the schema of a tool
    that the client sent and the expert sends back, do not count.

    Args:
        body: A chat completion, completion, response or list of embeddings, or the data of an event
            of one.

    Returns:
        The usage, or none where it does not state it.
    """
    at = len(body)
    for _ in range(_MAX_LOOKS):
        at = body.rfind(_KEY, 0, at)
        if at < 0:
            break
        # Behind a backslash the quotation mark belongs to a text that ends with this word.
        if (
            body[at - 1 : at] != b"\\"
            and (found := _parse_tail(body[at:].decode("utf-8", "replace"))) is not None
        ):
            return found
    return None


def _parse_tail(text: str) -> TokenUsage | None:
    """Tokens, if the text begins with the usage of the innermost open object.

    The text must be the rest of a document in which one object is open, or two.
    """
    try:
        members, at = split_members(text, 0, LENIENT)
        for _ in range(_MAX_DEPTH):
            rest = text[at:].lstrip()
            if not rest:
                return _tokens_of(members[0][1])
            at = split_members(text, len(text) - len(rest) + rest.startswith(","), LENIENT)[1]
    except (ValueError, RecursionError):
        return None
    return None


def _tokens_of(usage: Any) -> TokenUsage | None:
    if type(usage) is not dict:
        return None
    tokens_in = usage.get("prompt_tokens", usage.get("input_tokens"))
    tokens_out = usage.get("completion_tokens", usage.get("output_tokens"))
    if tokens_out is None:
        # Embeddings have no response to count: their total is that of the input.
        tokens_out = _difference(usage.get("total_tokens"), tokens_in)
    if (
        type(tokens_in) is not int
        or type(tokens_out) is not int
        or not (0 <= tokens_in < _MAX_TOKENS and 0 <= tokens_out < _MAX_TOKENS)
    ):
        return None
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    if type(details) is not dict:
        return TokenUsage(tokens_in, tokens_out)
    cached = _part_of(tokens_in, details.get("cached_tokens"))
    # The second is LiteLLM's name for it, from before OpenAI had one.
    written = details.get("cache_write_tokens", details.get("cache_creation_tokens"))
    return TokenUsage(tokens_in, tokens_out, cached, _part_of(tokens_in - cached, written))


def _difference(total: Any, part: Any) -> int | None:
    return total - part if type(total) is int and type(part) is int else None


def _part_of(tokens: int, part: Any) -> int:
    """A part of the tokens; 0 for a count that cannot be right, which changes no price."""
    return part if type(part) is int and 0 <= part <= tokens else 0


class StreamUsageParser:
    r"""Watches a stream (server-sent events), for a few microseconds a chunk.

    JSON is parsed only if it may tell the end. A line that has not ended is held up to 64 KiB: of a
    longer one its beginning and its end, where the usage stands.
    """

    __slots__ = ("_contents", "_deltas", "_has_ended", "_has_failed", "_name", "_rest", "_usage")

    def __init__(self) -> None:
        self._name = b""
        self._rest = b""
        self._usage = b""
        self._contents = 0
        self._deltas = 0
        self._has_ended = False
        self._has_failed = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if b"\r" in chunk:
            # An end of line that is cut in two becomes two; one empty line more means nothing here.
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._hold(self._rest + chunk)
            return
        lines = self._rest + chunk[:end]
        self._hold(chunk[end:])
        contents, deltas = _count_characters(lines)
        self._contents += contents
        self._deltas += deltas
        if self._name or b"error" in lines or (b"response." in lines and _has_end(lines)):
            for line in lines.split(b"\n"):
                self._read(line)
        if b"[DONE]" in lines and _is_done(lines):
            self._has_ended = True
        # Some servers send a usage of null with every event.
        if (
            b'"usage"' in lines
            and lines.count(b'"usage"') != lines.count(b'"usage":null')
            and _has_usage(lines)
        ):
            self._usage = next(line for line in reversed(lines.split(b"\n")) if _has_usage(line))

    def usage(self) -> TokenUsage:
        """Tokens of the request, if reported, and of the response.

        Those of the response are as reported, or else counted by the characters of its deltas.
        Events tell nothing: 1,000 tokens may come in 10 of them.
        """
        reported = parse_usage(self._rest) or parse_usage(self._usage)
        if reported is not None:
            return reported
        contents, deltas = _count_characters(self._rest)
        # A response repeats its texts under other names when they are complete.
        characters = (self._deltas + deltas) or (self._contents + contents)
        return TokenUsage(None, -(-characters // CHARACTERS_PER_TOKEN))

    @property
    def is_complete(self) -> bool:
        """Whether the stream has ended as it should, be it with an error, and was not cut off."""
        return (
            self._has_ended
            or _is_done(self._rest) is not None
            or (b"response." in self._rest and _event_type(self._rest) in _ENDS)
        )

    @property
    def error(self) -> bool:
        """Whether an event told of an error."""
        return self._has_failed or (b"error" in self._rest and _event_type(self._rest) in _FAILURES)

    def _hold(self, rest: bytes) -> None:
        self._rest = rest if len(rest) <= _MAX_LINE else rest[:_HEAD] + rest[_HEAD - _MAX_LINE :]

    def _read(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            name = line[6:].strip()
            # The name of an event comes before its data, and the stream is complete only if they
            # came, too.
            self._name = name if name in _ENDS else b""
            self._has_failed |= name in _FAILURES
        elif line.startswith((b"data:", b"error:")):
            event = self._name or _event_type(line)
            self._name = b""
            self._has_ended |= event in _ENDS
            self._has_failed |= event in _FAILURES


def _count_characters(lines: bytes) -> tuple[int, int]:
    """Characters of the texts of chats and completions, and of the deltas of responses."""
    counts = [0, 0]
    for name, text in _texts(lines):
        characters = len(text) if text.isascii() else len(text.decode("utf-8", "replace"))
        counts[name == b"delta"] += characters - 5 * text.count(b"\\u")
    return counts[0], counts[1]


class UsageFilter:
    """Takes the event of the usage out of a stream whose client did not ask for it.

    All other bytes stay as they are. An event is held until it is complete, which no client can
    read before; one longer than 64 KiB is let through in parts.

    Args:
        is_active: Whether the event is taken out.
        last_event: Gives an event to send before ``[DONE]``, or none.
    """

    __slots__ = ("_held", "_is_active", "_last_event")

    def __init__(
        self, *, is_active: bool = True, last_event: Callable[[], bytes] | None = None
    ) -> None:
        self._held = b""
        self._is_active = is_active
        self._last_event = last_event

    def feed(self, chunk: bytes, *, is_last: bool) -> bytes:
        """The bytes to send after the next ones have come, cut anywhere."""
        if not self._is_active and self._last_event is None:
            return chunk
        data = self._held + chunk
        end = len(data) if is_last else _end_of_events(data)
        self._held = data[end:]
        if len(self._held) > _MAX_LINE:
            end = len(data)
            self._held = b""
        events = data[:end]
        if self._last_event is not None and (done := _done_line(events)):
            events = events[: done.start()] + self._last_event() + events[done.start() :]
            self._last_event = None
        return _without_usage(events) if self._is_active else events


def _without_usage(events: bytes) -> bytes:
    if b'"usage"' not in events:
        return events
    ends = [found.end() for found in _border(events)]
    starts = [0, *ends]
    return b"".join(
        event
        for start, stop in zip(starts, [*ends, len(events)], strict=True)
        if not _is_usage_event(event := events[start:stop])
    )


def without_logprobs(body: bytes | bytearray) -> bytes:
    """A chat completion, whole or as events, without the log-probabilities of its choices.

    All other bytes stay as they are, and a body that cannot be read stays as it is.
    """
    if not body.lstrip().startswith(b"data:"):
        return _without_logprobs(bytes(body))
    return b"".join(
        line[:5] + _without_logprobs(line[5:]) if line.startswith(b"data:") else line
        for line in bytes(body).splitlines(keepends=True)
    )


def _without_logprobs(document: bytes) -> bytes:
    if b'"logprobs"' not in document:
        return document
    try:
        text = document.decode()
        spans = _logprob_spans(text)
    except (ValueError, RecursionError):
        return document
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text.encode()


def _logprob_spans(text: str) -> list[tuple[int, int]]:
    """Where the members begin and end, with the comma that goes with each."""
    spans = []
    at = find_member(text, text.find("{"), "choices")
    choice = None if at is None else _opening(text, at)
    while choice is not None:
        members, at = split_members(text, choice.end(), LENIENT)
        ends = [choice.end(), *(end for *_, end in members)]
        for place, (name, _, _, end) in enumerate(members):
            if name == "logprobs":
                comma = _comma(text, end) if place == 0 else None
                spans.append((ends[place], end if comma is None else comma.end()))
        choice = _next_choice(text, at)
    return spans


def _end_of_events(data: bytes) -> int:
    if b"\r" not in data:
        return data.rfind(b"\n\n") + 2 if b"\n\n" in data else 0
    # Of a border that is cut in two the line feed is still to come.
    ends = (found.end() for found in _border(data) if found.end() < len(data) or found[0] != _CUT)
    return max(ends, default=0)


def _is_usage_event(event: bytes) -> bool:
    if b'"usage"' not in event:
        return False
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        document = json.loads(b"\n".join(lines))
    except (ValueError, RecursionError):
        return False
    return (
        type(document) is dict
        and document.get("choices") == []
        and type(document.get("usage")) is dict
    )


def _event_type(line: bytes) -> bytes:
    """What a line tells: ``error``, the name of a response's last event, or anything else."""
    if line.startswith(b"error:"):
        return b"error"
    if not line.startswith(b"data:") or not (b'"error"' in line or _has_end(line)):
        return b""
    try:
        event = json.loads(line[5:])
    except (ValueError, RecursionError):
        return b""
    return _type_of_event(event) if type(event) is dict else b""


def _type_of_event(event: dict[str, Any]) -> bytes:
    kind = event.get("type")
    if type(kind) is str and (end := kind.encode("utf-8", "replace")) in _ENDS:
        return end
    return b"error" if event.get("error") or "error" in (kind, event.get("object")) else b""


# Ids of responses that name their expert, so that any replica can continue from them. As in LiteLLM
# this is base64 and no secret: all keys share the gateway's account with the provider anyway.


_PREFIX = "resp_mr"
_MAX_ENCODED = 1024
# Without escapes, so that an id is the same in JSON and outside of it.
_is_plain_id = re.compile(r"[A-Za-z0-9_.:/+=-]{1,200}").fullmatch


def encode_response_id(response_id: str, expert: str) -> str:
    """Return the id that clients get for a response of an expert."""
    named = f"{expert}\0{response_id}".encode()
    return _PREFIX + base64.urlsafe_b64encode(named).decode().rstrip("=")


def decode_response_id(encoded: str) -> tuple[str, str] | None:
    """Return the expert's own id and the expert, or ``None`` if the id is not one of ours."""
    if len(encoded) > _MAX_ENCODED or not encoded.startswith(_PREFIX):
        return None
    rest = encoded[len(_PREFIX) :]
    try:
        named = base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4)).decode()
    except ValueError:
        return None
    expert, _, response_id = named.partition("\0")
    # Each id has one spelling only.
    is_own = bool(expert) and _is_plain_id(response_id) is not None
    is_own = is_own and encode_response_id(response_id, expert) == encoded
    return (response_id, expert) if is_own else None


# Bytes of a member with an id, at most; of a long line so many are held.
_MAX_ID_MEMBER = 512
_MAX_NAME = 64
_ends_with_name = re.compile(rb'"(?:id|previous_response_id)"[ \t\r\n]*:[ \t\r\n]*\Z').search


class ResponseIdFilter:
    """Replaces the id of a response in the body of it, or in the events of its stream.

    The id is learned once, from the response or from the first event that has one, and replaced
    wherever it stands under ``id``; text cannot look like that, for its quotation marks are
    escaped. All other bytes stay as they are. A line is held until it is complete; one longer than
    64 KiB is let through in parts.

    Args:
        encode: The new id for that of the expert.
        previous: The id of the response before, as the expert and as the client know it, or none.
    """

    __slots__ = ("_encode", "_held", "_is_learned", "_replacements")

    def __init__(
        self, encode: Callable[[str], str], previous: tuple[str, str] | None = None
    ) -> None:
        self._encode = encode
        self._held = b""
        self._is_learned = False
        self._replacements = [] if previous is None else [previous]

    def feed(self, chunk: bytes, *, is_last: bool) -> bytes:
        """The bytes to send after the next ones have come, cut anywhere."""
        data = self._held + chunk
        end = len(data) if is_last else data.rfind(b"\n") + 1
        if len(data) - end > _MAX_LINE:
            data = self._replace(data)
            end = len(data) - _MAX_ID_MEMBER
            self._held = data[end:]
            return data[:end]
        self._held = data[end:]
        return self._replace(data[:end])

    def _replace(self, data: bytes) -> bytes:
        if not self._is_learned and (found := _find_response_id(data)) is not None:
            self._is_learned = True
            self._replacements.append((found, self._encode(found)))
        for old, new in self._replacements:
            data = _replace_id(data, b'"%b"' % old.encode(), b'"%b"' % new.encode())
        return data


def _replace_id(data: bytes, old: bytes, new: bytes) -> bytes:
    # By its occurrences: a pattern took 10 ms for a megabyte.
    parts = data.split(old)
    pieces = parts[:1]
    for before, after in pairwise(parts):
        is_id = _ends_with_name(before, max(0, len(before) - _MAX_NAME))
        pieces += new if is_id else old, after
    return b"".join(pieces)


def _find_response_id(data: bytes) -> str | None:
    """The id of the response that data holds, or that the first event tells which has one."""
    # Each byte becomes one character, so that half of a letter at the end does no harm.
    if data[:_MAX_NAME].lstrip().startswith(b"{"):
        return _id_of_object(data[:_MAX_LINE].decode("latin-1").lstrip(), 0)
    if b'"response"' in data:
        for line in data.splitlines():
            if line.startswith(b"data:") and b'"response"' in line:
                text = line[5 : 5 + _MAX_LINE].decode("latin-1").lstrip()
                if found := _id_of_object(text, find_member(text, 0, "response")):
                    return found
    return None


def _id_of_object(text: str, at: int | None) -> str | None:
    place = None if at is None else find_member(text, at, "id")
    if place is None or text[place : place + 1] != '"':
        return None
    try:
        value, _ = LENIENT.raw_decode(text, place)
    except ValueError:
        return None
    return value if _is_plain_id(value) else None
