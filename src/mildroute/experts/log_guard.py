"""Keeps keys out of what HTTP libraries log while they are debugged."""

from __future__ import annotations

import logging

from mildroute.experts.secret import Secret

__all__ = ["LogGuard"]

_SCRUBBED = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy", "httpcore.socks")
_SILENCED = ("hpack.hpack", "hpack.table")


class LogGuard(logging.Filter):
    """While it is on, httpx and httpcore log no key, and hpack logs nothing below the level of information.

    hpack writes every header of HTTP/2, Authorization too, in plain and in compressed form, which cannot be scrubbed. httpcore writes the
    headers of answers, in which a server may repeat the key.

    Args:
        secret: The key.

    Example:
        >>> guard = LogGuard(Secret("KEY", {"KEY": "sk-1234"}))
        >>> record = logging.LogRecord("httpcore.http11", logging.DEBUG, "", 0, "headers=[%r]", (b"sk-1234",), None)
        >>> guard.filter(record), record.getMessage()
        (True, "headers=[b'[secret]']")
    """

    def __init__(self, secret: Secret) -> None:
        super().__init__()
        self._secret = secret

    def filter(self, record: logging.LogRecord) -> bool:
        """Scrub a record; false for one that cannot be scrubbed."""
        if record.name in _SILENCED:
            return record.levelno > logging.DEBUG
        record.msg, record.args = self._secret.scrub(record.getMessage()), ()
        return True

    def on(self) -> None:
        """Begin."""
        for name in (*_SCRUBBED, *_SILENCED):
            logging.getLogger(name).addFilter(self)

    def off(self) -> None:
        """End."""
        for name in (*_SCRUBBED, *_SILENCED):
            logging.getLogger(name).removeFilter(self)
