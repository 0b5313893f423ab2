"""Logs of the gateway on stderr: one format for all entries, an access log, and flood limits.

A line is an event, such as ``circuit opened``, with fields. In text, the fields follow the event as
``name=value``; in JSON, they are members next to ``timestamp``, ``level``, ``logger`` and
``message``. Fields use OpenTelemetry's names where OpenTelemetry defines one. No line contains a
prompt or a key.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from mildroute.gateway.config import LoggingConfig
from mildroute.gateway.http.errors import CLIENT_CLOSED_REQUEST

__all__ = ["AccessLog", "LogThrottle", "log_event", "log_to_stderr"]


_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_App = Callable[[_Scope, Any, Any], Awaitable[None]]

_MAX_VALUE = 512
_is_plain = re.compile(r"[\w.:/@+*,%~-]+", re.ASCII).fullmatch
_ACCESS = logging.getLogger("mildroute.access")
# Response headers that the access log includes, with the names of their fields.
_FIELD_OF_HEADER = {b"x-mildroute-decision-id": "decision_id", b"x-mildroute-expert": "expert"}


def log_event(logger: logging.Logger, level: int, event: str, **fields: object) -> None:
    """Log an event with its fields, except for those that are ``None`` or empty.

    The text of an event is constant and contains no values. Two underscores in a keyword become a
    dot in the field's name.
    """
    if logger.isEnabledFor(level):
        named = {
            name.replace("__", "."): value
            for name, value in fields.items()
            if value is not None and value != ""
        }
        logger.log(level, event, extra={"fields": named})


class LogThrottle:
    """A throttle that admits one entry of each kind per interval and counts the others."""

    __slots__ = ("_clock", "_interval", "_seen")

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = interval
        self._clock = clock
        self._seen: dict[Hashable, tuple[float, int]] = {}

    def admit(self, kind: Hashable) -> int | None:
        """Return the number of entries suppressed before this one; ``None`` suppresses this one."""
        now = self._clock()
        last, suppressed = self._seen.get(kind, (-self._interval, 0))
        if now - last < self._interval:
            self._seen[kind] = (last, suppressed + 1)
            return None
        self._seen[kind] = (now, 0)
        return suppressed


@contextmanager
def log_to_stderr(config: LoggingConfig) -> Iterator[None]:
    """Write the entries of all loggers to stderr in one format while the context is active.

    The gateway's own entries are written at the configured level and above, and those of libraries
    at WARNING and above.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if config.format == "json" else _TextFormatter())
    root = logging.getLogger()
    gateway = logging.getLogger("mildroute")
    levels = (root.level, gateway.level)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    gateway.setLevel(config.level.upper())
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        gateway.setLevel(levels[1])


class _JsonFormatter(logging.Formatter):
    """A formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": _timestamp(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception.stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _TextFormatter(logging.Formatter):
    """A formatter that writes text lines: time, level, logger, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        fields: Mapping[str, object] = getattr(record, "fields", {})
        pairs = [f"{name}={_format_value(value)}" for name, value in fields.items()]
        # Unescaped, %0A in a path would let a client forge a log line.
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        prefix = f"{_timestamp(record)} {record.levelname} {record.name}"
        line = " ".join([prefix, message, *pairs])
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _format_value(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if _is_plain(text) else json.dumps(text)


class AccessLog:
    """An ASGI middleware that logs one entry per request.

    Client, expert and ids come from the scope and from the response headers.
    """

    def __init__(self, app: _App) -> None:
        self._app = app

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        # A client that disconnects before the response sees no status.
        response: dict[str, Any] = {"status": CLIENT_CLOSED_REQUEST}

        async def send_and_capture(message: _Message) -> None:
            if message["type"] == "http.response.start":
                response["status"] = message["status"]
                for name, value in message["headers"]:
                    if name in _FIELD_OF_HEADER:
                        response[_FIELD_OF_HEADER[name]] = value.decode("latin-1")
            await send(message)

        try:
            await self._app(scope, receive, send_and_capture)
        finally:
            _log_request(scope, response, time.perf_counter() - started)


def _log_request(scope: _Scope, response: dict[str, Any], seconds: float) -> None:
    request_ids = (value for name, value in scope["headers"] if name == b"x-request-id")
    log_event(
        _ACCESS,
        logging.INFO,
        "request",
        http__request__method=scope["method"],
        url__path=scope["path"][:_MAX_VALUE],
        http__response__status_code=response["status"],
        seconds=round(seconds, 6),
        key=scope.get("mildroute.key"),
        request_id=next(request_ids, b"").decode("latin-1")[:_MAX_VALUE],
        decision_id=response.get("decision_id"),
        expert=response.get("expert"),
        trace_id=scope.get("mildroute.trace_id"),
    )
