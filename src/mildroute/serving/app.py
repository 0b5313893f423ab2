"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mildroute.errors import MissingExtraError
from mildroute.experts.secret import Secret
from mildroute.serving.admin import Admin
from mildroute.serving.answering import Answering
from mildroute.serving.attempts import Attempts
from mildroute.serving.caller import Caller, Receive, Scope, Send
from mildroute.serving.closing import Closing
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.conversations import Conversations
from mildroute.serving.deciding import Deciding
from mildroute.serving.delivery import Delivery
from mildroute.serving.door import Door, Hall, Handler
from mildroute.serving.entrance import Entrance
from mildroute.serving.guard import Guard
from mildroute.serving.parts import Parts
from mildroute.serving.renewal import Renewal
from mildroute.serving.roster import Roster
from mildroute.serving.routing import Routing
from mildroute.serving.small_doors import SmallDoors

try:
    from starlette.routing import BaseRoute, Route, Router
except ImportError:
    raise MissingExtraError.for_package("starlette", extra="serve", user="mildroute.serving") from None

__all__ = ["Gateway", "create_app"]

_ANSWERED = ("chat/completions", "completions", "responses", "embeddings")
_LOOK = 0.02


class Gateway:
    """An ASGI application that chooses experts and passes on their answers.

    A server should call :meth:`begin_drain` when it is told to stop, listen for ``failover.notice`` seconds more, so that load balancers
    see it and look elsewhere, give requests under way ``failover.drain`` seconds, and end the lifespan; the end of the lifespan does all of
    that itself where the server does not, but nobody can ask by then.

    Args:
        parts: What it is put together from.

    Attributes:
        roster: Its experts.
        hall: Its requests under way.
        renewal: Reads its router and its keys anew.

    Example:
        >>> Gateway.__name__
        'Gateway'
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.hall = Hall(parts.settings.limits.connections)
        self.roster = Roster(parts.experts, parts.settings, parts.clock)
        self.renewal = Renewal(parts.holder, parts.keyring, parts.settings.keys)
        self._router = Router(self._routes(), redirect_slashes=False, default=self._elsewhere, lifespan=self._lifespan)
        parts.telemetry.watch(in_flight=lambda: float(self.hall.inside), circuits=self.roster.circuits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        await self._router(scope, receive, send)

    def begin_drain(self) -> None:
        """Tell load balancers, by ``/readyz``, to send nothing more; what comes nevertheless is answered.

        They can hear it for as long as the server listens: ``mildroute serve`` goes on for ``failover.notice`` seconds, 0 by default.
        """
        self.hall.is_draining = True

    async def drained(self) -> bool:
        """Wait until no request is under way, at most ``failover.drain`` seconds; false if some are left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._parts.settings.failover.drain
        while self.hall.inside and loop.time() < until:
            await asyncio.sleep(_LOOK)
        return not self.hall.inside

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.begin_drain()
            await self.drained()
            self.roster.close()
            self._parts.log.close()
            if self._parts.feedback is not None:
                self._parts.feedback.close()

    def _routes(self) -> list[BaseRoute]:
        """The hot paths first: a router looks at one after the other."""
        parts, hall = self._parts, self.hall
        entrance, closing = Entrance(parts.keyring, parts.gatekeeper), Closing(parts, self.roster)
        conversations = Conversations(parts.settings.policy, parts.clock)
        deciding = Deciding(parts, self.roster, conversations)
        attempts = Attempts(self.roster, parts.settings, parts.telemetry.fallback, parts.clock, parts.now)
        answering = Answering(parts, entrance, deciding, Delivery(attempts, parts.settings, conversations), closing)
        settings, refused = parts.settings, parts.telemetry.refused
        small = SmallDoors(parts, self.roster, entrance, hall, _guard(settings.metrics_key_env))
        posted: dict[str, Handler] = {f"/v1/{path}": functools.partial(answering.answer, path) for path in _ANSWERED}
        posted |= {"/v1/route": Routing(parts, entrance, deciding, closing).route, "/v1/feedback": small.feedback}
        if (guard := _guard(settings.admin_key_env)) is not None:
            posted["/admin/reload"] = Admin(self.renewal, guard).reload
        open_to_all = {"/healthz": small.health, "/readyz": small.readiness, "/metrics": small.metrics, "/openapi.json": small.openapi}
        asked: dict[str, Handler] = {"/v1/models": small.models, "/v1/models/{model:path}": small.model}
        return [
            *(Route(path, Door({"POST": handler}, hall, refused)) for path, handler in posted.items()),
            *(Route(path, Door({"GET": handler}, hall, refused)) for path, handler in asked.items()),
            *(Route(path, Door({"GET": handler}, refused=refused)) for path, handler in open_to_all.items()),
        ]

    async def _elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Paths that are not there."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        complaint = ComplaintError(404, "this path is not served; see /openapi.json for those that are.")
        self._parts.telemetry.refused(complaint.status, complaint.code)
        await Caller(scope, receive, send).complain(complaint)


def create_app(parts: Parts) -> Gateway:
    """Put a gateway together; nothing is started, connected or read but the keys of experts from the environment.

    Args:
        parts: What it is made of.

    Returns:
        An ASGI application, for uvicorn and its like.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.file import ExpertFile
        >>> from mildroute.serving.settings import Settings
        >>> app = create_app(Parts(Settings(), ExpertFile(Path("experts.yaml"), ()), holder=None))
        >>> app.hall.inside
        0
    """
    return Gateway(parts)


def _guard(variable: str | None) -> Guard | None:
    return None if variable is None else Guard(Secret(variable))
