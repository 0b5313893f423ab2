"""Response bodies: the tokens that an expert reports, in JSON or in an event stream."""

from __future__ import annotations

import orjson

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.experts.events import EventSplitter, EventTooLargeError, StreamState, parse_event
from mildroute.experts.usage import TokenUsage, tokens_of_usage, usage_of_document

__all__ = ["AnswerReader"]

# Maximum bytes of a response to buffer in order to read its usage.
_MAX_BYTES = 16 << 20
_STREAM_PREFIXES = (b"data:", b"event:", b":", b"id:", b"retry:")


class AnswerReader:
    """A reader of token usage from a response body that arrives in chunks.

    Attributes:
        size: Number of bytes read so far.
    """

    def __init__(self) -> None:
        self.size = 0
        self._body = bytearray()
        self._splitter: EventSplitter | None = None
        self._state = StreamState()
        self._is_readable = True

    def feed(self, chunk: bytes) -> None:
        """Read the next bytes."""
        if not self.size:
            is_stream = chunk.lstrip().startswith(_STREAM_PREFIXES)
            self._splitter = EventSplitter() if is_stream else None
        self.size += len(chunk)
        if not self._is_readable:
            return
        if self._splitter is None:
            self._body += chunk
            self._is_readable = len(self._body) <= _MAX_BYTES
            return
        try:
            events = self._splitter.feed(chunk)
        except EventTooLargeError:
            self._is_readable = False
            return
        for event in events:
            self._state.see(parse_event(event))

    def usage(self) -> TokenUsage:
        """Return the token usage, estimated from the size if the answer does not report it."""
        if self._splitter is not None:
            for event in self._splitter.flush():
                self._state.see(parse_event(event))
            return self._state.usage
        estimate = TokenUsage(None, self.size // CHARACTERS_PER_TOKEN, is_counted=True)
        if not self._is_readable:
            return estimate
        try:
            document = orjson.loads(self._body)
        except orjson.JSONDecodeError:
            return estimate
        return tokens_of_usage(usage_of_document(document)) or estimate
