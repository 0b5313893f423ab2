"""Token usage that a response reports, also of streams while they pass."""

from __future__ import annotations

import json
import re
from typing import Any

from mildroute.serving.http.body import LENIENT, split_members

__all__ = ["StreamUsageParser", "parse_usage"]


_KEY = b'"usage"'
_LOOKS = 64
_DEEPEST = 2
_LONGEST_LINE = 1 << 16
_HEAD = 512
_MOST_TOKENS = 1 << 40
_has_usage = re.compile(rb'"usage"[ \t]*:[ \t]*\{').search
_is_done = re.compile(rb"^data: ?\[DONE\][ \t]*$", re.MULTILINE).search
_has_end = re.compile(rb"response\.(?:completed|incomplete|failed)").search
_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
_FAILURES = (b"response.failed", b"error")


def parse_usage(body: bytes) -> tuple[int, int] | None:
    """Tokens of the request and of the answer, as a whole answer states them.

    Only the end of the body is read, from its last ``usage`` on, because what stands before can be long: vectors, for one. Of fields of
    the same name further inside, such as in the schema of a tool that the client sent and the expert sends back, none is taken.

    Args:
        body: A chat completion, completion, response or list of embeddings, or the data of an event of one.

    Returns:
        Both, or none where it does not state them.

    Example:
        >>> parse_usage(b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}}')
        (9, 2)
    """
    at = len(body)
    for _ in range(_LOOKS):
        at = body.rfind(_KEY, 0, at)
        if at < 0:
            break
        # Behind a backslash the quotation mark belongs to a text that ends with this word.
        if body[at - 1 : at] != b"\\" and (found := _stated(body[at:].decode("utf-8", "replace"))) is not None:
            return found
    return None


def _stated(text: str) -> tuple[int, int] | None:
    """Tokens, if the text is the rest of a document in which one object is open, or two, and begins with the usage of the innermost."""
    try:
        members, at = split_members(text, 0, LENIENT)
        for _ in range(_DEEPEST):
            rest = text[at:].lstrip()
            if not rest:
                return _tokens_of(members[0][1])
            at = split_members(text, len(text) - len(rest) + rest.startswith(","), LENIENT)[1]
    except (ValueError, RecursionError):
        return None
    return None


def _tokens_of(usage: Any) -> tuple[int, int] | None:
    if type(usage) is not dict:
        return None
    parsed = usage.get("prompt_tokens", usage.get("input_tokens"))
    # Embeddings have no answer to count.
    answered = usage.get("completion_tokens", usage.get("output_tokens")) or 0
    if type(parsed) is not int or type(answered) is not int or not (0 <= parsed < _MOST_TOKENS and 0 <= answered < _MOST_TOKENS):
        return None
    return parsed, answered


class StreamUsageParser:
    r"""Watches an answer in pieces (server-sent events), for a few microseconds a piece: JSON is read only where it may tell the end.

    A line that has not ended is kept up to 64 KiB: of a longer one its head and its tail, where the usage stands.

    Example:
        >>> stream = StreamUsageParser()
        >>> stream.feed(b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\nda')
        >>> stream.feed(b'ta: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}\n\ndata: [DONE]\n\n')
        >>> stream.tokens(), stream.is_complete, stream.error
        ((9, 1), True, False)
    """

    __slots__ = ("_deltas", "_events", "_has_ended", "_has_failed", "_name", "_rest", "_usage")

    def __init__(self) -> None:
        self._name = self._rest = self._usage = b""
        self._events = self._deltas = 0
        self._has_ended = self._has_failed = False

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, cut anywhere."""
        if b"\r" in chunk:
            # An end of line that is cut in two becomes two; one empty line more means nothing here.
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = chunk.rfind(b"\n") + 1
        if not end:
            self._keep(self._rest + chunk)
            return
        lines = self._rest + chunk[:end]
        self._keep(chunk[end:])
        # A text in JSON has no line feed of its own: one is always the border of a line.
        self._events += lines.count(b"\ndata:") + lines.startswith(b"data:") - lines.count(b'"content":""') - lines.count(b'"delta":{}')
        self._deltas += lines.count(b".delta\n")
        if self._name or b"error" in lines or (b"response." in lines and _has_end(lines)):
            for line in lines.split(b"\n"):
                self._read(line)
        if b"[DONE]" in lines and _is_done(lines):
            self._has_ended = True
            self._events -= 1
        # Some servers send a usage of null with every event.
        if b'"usage"' in lines and lines.count(b'"usage"') != lines.count(b'"usage":null') and _has_usage(lines):
            self._usage = next(line for line in reversed(lines.split(b"\n")) if _has_usage(line))

    def tokens(self) -> tuple[int | None, int]:
        """Tokens of the request, if stated, and of the answer, as stated or else one for each event that brings something."""
        stated = parse_usage(self._rest) or parse_usage(self._usage)
        return stated or (None, self._deltas or max(self._events, 0))

    @property
    def is_complete(self) -> bool:
        """Whether the answer has ended as it should, be it with an error, and was not cut off."""
        return self._has_ended or _is_done(self._rest) is not None or (b"response." in self._rest and _event_type(self._rest) in _ENDS)

    @property
    def error(self) -> bool:
        """Whether an event told of an error."""
        return self._has_failed or (b"error" in self._rest and _event_type(self._rest) in _FAILURES)

    def _keep(self, rest: bytes) -> None:
        self._rest = rest if len(rest) <= _LONGEST_LINE else rest[:_HEAD] + rest[_HEAD - _LONGEST_LINE :]

    def _read(self, line: bytes) -> None:
        if line.startswith(b"event:"):
            name = line[6:].strip()
            # The name of an event comes before its data, and the answer is whole only if they came, too.
            self._name = name if name in _ENDS else b""
            self._has_failed |= name in _FAILURES
        elif line.startswith((b"data:", b"error:")):
            tidings = self._name or _event_type(line)
            self._name = b""
            self._has_ended |= tidings in _ENDS
            self._has_failed |= tidings in _FAILURES


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
    return _tidings_of_event(event) if type(event) is dict else b""


def _tidings_of_event(event: dict[str, Any]) -> bytes:
    kind = event.get("type")
    if type(kind) is str and (end := kind.encode("utf-8", "replace")) in _ENDS:
        return end
    return b"error" if event.get("error") or "error" in (kind, event.get("object")) else b""
