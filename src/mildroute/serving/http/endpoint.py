"""An endpoint: methods of a path, the limit of requests in flight, and errors as responses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from mildroute.serving.http.body import BadRequestError
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import ClientDisconnectError, Header, Receive, Request, Scope, Send

__all__ = ["Endpoint", "Handler", "InFlightLimiter", "Refused"]


_LOG = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[None]]
"""Answers one request."""

Refused = Callable[[int, str | None], None]
"""Is told the status and the code of a request that was refused before a decision."""


def _untold(status: int, code: str | None) -> None: ...


class InFlightLimiter:
    """All requests that are inside.

    Args:
        most: That may be inside at the same time.

    Attributes:
        inside: That are now.
        is_draining: Whether the gateway is about to stop; it still answers, but should get no new requests.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.inside, self.is_draining = 0, False

    def enter(self) -> None:
        """One more; a APIError if it is too full."""
        if self.inside >= self._most:
            raise APIError(503, "too many requests are under way; come again.", code="overloaded", retry_after=1.0)
        self.inside += 1


class Endpoint:
    """An ASGI application for one path.

    Args:
        handlers: By method.
        limiter: Where requests are counted, or none for paths that must answer even when it is full.
        refused: Told of requests that were refused before a decision.

    Example:
        >>> async def nothing(request): ...
        >>> sorted(Endpoint({"GET": nothing}).methods)
        ['GET', 'HEAD']
    """

    def __init__(self, handlers: dict[str, Handler], limiter: InFlightLimiter | None = None, refused: Refused = _untold) -> None:
        self._handlers, self._limiter, self._refused = dict(handlers), limiter, refused
        if "GET" in handlers:
            self._handlers["HEAD"] = handlers["GET"]
        self.methods = tuple(self._handlers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        request = Request(scope, receive, send)
        try:
            await self._handle(request)
        except APIError as error_response:
            await self._say(request, error_response)
        except BadRequestError as error:
            await self._say(request, APIError(error.status, error.message, param=error.param))
        except ClientDisconnectError:
            pass
        except Exception as error:  # noqa: BLE001 - the last line of defence: a client must not see what went wrong inside
            # Neither the text of the error nor its frames: they may quote what was asked.
            _LOG.error("%s %s failed: %s in %s", scope["method"], scope["path"], type(error).__name__, _place(error))
            await self._say(request, APIError(500, "the gateway failed; its operator can find the reason in its log."))

    async def _handle(self, request: Request) -> None:
        handler = self._handlers.get(request.scope["method"])
        if handler is None:
            error_response = APIError(405, f"this path takes {', '.join(self.methods)}, got another method.")
            await self._say(request, error_response, [(b"allow", ", ".join(self.methods).encode())])
            return
        if self._limiter is None:
            await handler(request)
            return
        self._limiter.enter()
        try:
            await handler(request)
        finally:
            self._limiter.inside -= 1

    async def _say(self, request: Request, error_response: APIError, headers: Sequence[Header] = ()) -> None:
        """An answer that has begun cannot become another one; the server cuts it off."""
        if not request.is_counted:
            self._refused(error_response.status, error_response.code)
        if not request.has_started:
            await request.send_error(error_response, headers)


def _place(error: Exception) -> str:
    """File and line at which it was raised."""
    frames = error.__traceback__
    while frames is not None and frames.tb_next is not None:
        frames = frames.tb_next
    return "nowhere" if frames is None else f"{frames.tb_frame.f_code.co_filename}:{frames.tb_lineno}"
