"""One path of the gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from mildroute.gateway.http.errors import APIError, shutting_down
from mildroute.gateway.http.headers import Header
from mildroute.gateway.http.in_flight import InFlightLimiter
from mildroute.gateway.http.request import ClientDisconnect, Receive, Request, Scope, Send

__all__ = ["Endpoint", "Handler"]

_LOG = logging.getLogger(__name__)
# A function that handles one request.
Handler = Callable[[Request], Awaitable[None]]


class Endpoint:
    """An ASGI application for one path.

    The endpoint counts requests in flight and rejections, and sends errors in the format that
    clients of the path expect.

    Args:
        handlers: Handlers by HTTP method.
        limiter: Counts requests; ``None`` for paths that must respond even under overload.
        on_rejection: Called with the status and code of each request that is rejected before a
            decision.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        limiter: InFlightLimiter | None,
        on_rejection: Callable[[int, str | None], None],
    ) -> None:
        self._handlers = dict(handlers)
        self._limiter = limiter
        self._on_rejection = on_rejection
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self.methods = tuple(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, and send an error if it fails."""
        request = Request(scope, receive, send)
        try:
            await self._handle(request)
        except APIError as error:
            await self._reject(request, error)
        except ClientDisconnect:
            pass
        except asyncio.CancelledError:
            # uvicorn cancels requests that outlast the drain. It would print a traceback for each
            # of them and send a status 500.
            await self._reject(request, shutting_down())
        except Exception as error:  # noqa: BLE001 - the client must not see internal errors
            # Do not log the text of the error or its frames, because they may quote the request.
            kind = type(error).__name__
            _LOG.error(
                "%s %s failed: %s in %s", scope["method"], scope["path"], kind, _line_of(error)
            )
            message = "the gateway failed; its operator can find the reason in its log."
            await self._reject(request, APIError(500, message))

    async def _handle(self, request: Request) -> None:
        handler = self._handlers.get(request.scope["method"])
        if handler is None:
            methods = ", ".join(self.methods)
            error = APIError(405, f"this path takes {methods}, got another method.")
            await self._reject(request, error, [(b"allow", methods.encode())])
            return
        if self._limiter is None:
            await handler(request)
            return
        request.slot = self._limiter.acquire()
        try:
            await handler(request)
        finally:
            request.slot.release()

    async def _reject(
        self, request: Request, error: APIError, headers: Sequence[Header] = ()
    ) -> None:
        """Send an error, unless the response has begun; the server then cuts the response off."""
        if not request.is_decided:
            self._on_rejection(error.status, error.code)
        if not request.has_response:
            await request.send_error(error, headers)


def _line_of(error: Exception) -> str:
    """Return the file and line at which an error was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return "nowhere"
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
