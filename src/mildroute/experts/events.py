"""Server-sent events of a stream: splitting, parsing and accumulated state."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import orjson

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.exceptions import MildrouteError
from mildroute.experts.anthropic import message_tokens
from mildroute.experts.usage import TokenUsage, tokens_of_usage, usage_of_event

__all__ = [
    "Event",
    "EventSplitter",
    "EventTooLargeError",
    "StreamState",
    "event_bytes",
    "parse_event",
]

# Maximum bytes of an event. The last event of a response may repeat all of it, including images.
_MAX_EVENT = 16 << 20
_border = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\Z))").search
_field = re.compile(rb"^(event|data|error):[ ]?(.*)$", re.MULTILINE).findall
# Members of events that hold what an expert generates.
_TEXTS = frozenset(
    {"content", "text", "reasoning_content", "reasoning", "refusal", "arguments"}
    | {"thinking", "partial_json"}
)
_ENDS = ("response.completed", "response.incomplete", "response.failed", "message_stop")


class EventTooLargeError(MildrouteError):
    """An event of a stream is too large."""

    def __init__(self) -> None:
        super().__init__(f"an event must have at most {_MAX_EVENT:,} bytes.")


class Event(NamedTuple):
    """One event.

    Args:
        raw: The bytes as received, including the blank line.
        name: Value of the ``event`` field.
        data: The decoded JSON in the ``data`` field, or ``None``.
        is_done: Whether the data is ``[DONE]``.
        has_data: Whether the event has data, unlike a comment.
    """

    raw: bytes
    name: str = ""
    data: Any = None
    is_done: bool = False
    has_data: bool = False

    @property
    def kind(self) -> str:
        """The type of the event, from its data or else its name."""
        kind = self.data.get("type") if type(self.data) is dict else None
        return kind if type(kind) is str else self.name

    @property
    def is_error(self) -> bool:
        """Return whether the event reports an error."""
        if self.name == "error" or self.kind in ("error", "response.failed"):
            return True
        data = self.data
        return type(data) is dict and bool(data.get("error") or data.get("object") == "error")


def parse_event(raw: bytes) -> Event:
    """Parse one event."""
    name = ""
    lines = []
    # JSON contains no literal carriage returns.
    text = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in raw else raw
    for label, value in _field(text):
        if label == b"event":
            name = value.strip().decode("utf-8", "replace")
        elif label == b"error":
            # Some servers write an error without an event around it.
            name = "error"
            lines.append(value)
        else:
            lines.append(value)
    data = b"\n".join(lines)
    if data.strip() == b"[DONE]":
        return Event(raw, name, is_done=True, has_data=True)
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        document = None
    return Event(raw, name, document, has_data=bool(lines))


def event_bytes(name: str, document: Any) -> bytes:
    """Return an event as bytes."""
    head = b"event: %b\n" % name.encode() if name else b""
    return head + b"data: " + orjson.dumps(document) + b"\n\n"


class EventSplitter:
    """A splitter of a stream into events, for arbitrary chunks and any line ending."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events that a chunk completes, each with its blank line.

        Raises:
            EventTooLargeError: The current event has more than 16 MiB.
        """
        data = self._rest + chunk
        start = max(0, len(self._rest) - 3)
        events = []
        at = 0
        while (border := _border(data, max(at, start))) is not None:
            events.append(data[at : border.end()])
            at = border.end()
        self._rest = data[at:]
        if len(self._rest) > _MAX_EVENT:
            raise EventTooLargeError
        return events

    def flush(self) -> list[bytes]:
        """Return the bytes of a last event that lacks its blank line."""
        rest = self._rest
        self._rest = b""
        return [rest] if rest else []


class StreamState:
    """The state of a stream, as reported by its events so far.

    Attributes:
        has_ended: Whether the stream has ended properly, possibly with an error.
        has_failed: Whether an event reported an error.
    """

    def __init__(self) -> None:
        self.has_ended = False
        self.has_failed = False
        self._characters = 0
        self._usage: TokenUsage | None = None
        self._message: dict[str, Any] = {}
        self._has_message_end = False

    def see(self, event: Event) -> None:
        """Update the state with the next event."""
        self.has_failed = self.has_failed or event.is_error
        self.has_ended = self.has_ended or event.is_done
        document = event.data
        if type(document) is not dict:
            return
        self.has_ended = self.has_ended or event.kind in _ENDS
        self._characters += _generated_characters(document, event.kind)
        usage = usage_of_event(document)
        if usage is None:
            return
        if event.kind in ("message_start", "message_delta"):
            self._message |= {name: value for name, value in usage.items() if value is not None}
            self._has_message_end = self._has_message_end or event.kind == "message_delta"
        elif (tokens := tokens_of_usage(usage)) is not None:
            # If several events report a running count, the last one is valid.
            self._usage = tokens

    @property
    def usage(self) -> TokenUsage:
        """The reported tokens; unreported tokens of the response are estimated from its characters.

        The number of events is no measure, because 10 events may carry 1,000 tokens.
        """
        if self._usage is not None:
            return self._usage
        counted = -(-self._characters // CHARACTERS_PER_TOKEN)
        tokens = message_tokens(self._message)
        if tokens is None:
            return TokenUsage(None, counted)
        if self._has_message_end:
            return TokenUsage(*tokens)
        tokens_in, _, cached, written = tokens
        return TokenUsage(tokens_in, counted, cached, written, is_counted=True)


def _generated_characters(document: dict[str, Any], kind: str) -> int:
    """Return the number of characters in an event that the expert generated."""
    if kind.startswith("response."):
        # Only deltas count, because later events repeat them.
        delta = document.get("delta")
        return len(delta) if kind.endswith(".delta") and type(delta) is str else 0
    characters = 0
    values: list[Any] = [document]
    while values:
        value = values.pop()
        if type(value) is list:
            values += value
        elif type(value) is dict:
            for name, member in value.items():
                if type(member) is str:
                    characters += len(member) if name in _TEXTS else 0
                else:
                    values.append(member)
    return characters
