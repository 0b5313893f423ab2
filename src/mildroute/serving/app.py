"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mildroute.exceptions import MissingExtraError
from mildroute.experts.secrets import Secret
from mildroute.serving.api.completions import CompletionsEndpoint
from mildroute.serving.api.management import AdminEndpoints, ManagementEndpoints
from mildroute.serving.api.route import RouteEndpoint
from mildroute.serving.auth.keys import AdminAuth
from mildroute.serving.auth.limits import Authenticator
from mildroute.serving.context import RequestRecorder
from mildroute.serving.http.endpoint import Endpoint, Handler, InFlightLimiter
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Receive, Request, Scope, Send
from mildroute.serving.routing.affinity import SessionAffinity
from mildroute.serving.routing.decider import Decider
from mildroute.serving.routing.reload import Reloader
from mildroute.serving.services import GatewayServices
from mildroute.serving.upstream.failover import Failover
from mildroute.serving.upstream.forward import ResponseForwarder
from mildroute.serving.upstream.pool import ExpertPool

__all__ = ["Gateway", "create_app"]


try:
    from starlette.routing import BaseRoute, Route, Router
except ImportError:
    raise MissingExtraError.for_package("starlette", extra="serve", user="mildroute.serving") from None


_ANSWERED = ("chat/completions", "completions", "responses", "embeddings")
_LOOK = 0.02


class Gateway:
    """An ASGI application that chooses experts and passes on their answers.

    A server should call :meth:`begin_drain` when it is told to stop, listen for ``failover.notice`` seconds more, so that load balancers
    see it and look elsewhere, give requests under way ``failover.drain`` seconds, and end the lifespan; the end of the lifespan does all of
    that itself where the server does not, but nobody can ask by then.

    Args:
        services: What it is put together from.

    Attributes:
        pool: Its experts.
        limiter: Its requests under way.
        renewal: Reads its router and its keys again.

    Example:
        >>> Gateway.__name__
        'Gateway'
    """

    def __init__(self, services: GatewayServices) -> None:
        self._services = services
        self.limiter = InFlightLimiter(services.settings.limits.connections)
        self.pool = ExpertPool(services.experts, services.settings, services.clock)
        self.renewal = Reloader(services.manager, services.key_store, services.settings.keys)
        self._router = Router(self._routes(), redirect_slashes=False, default=self._elsewhere, lifespan=self._lifespan)
        services.metrics.watch(in_flight=lambda: float(self.limiter.inside), circuits=self.pool.circuits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        await self._router(scope, receive, send)

    def begin_drain(self) -> None:
        """Tell load balancers, by ``/readyz``, to send nothing more; what comes nevertheless is answered.

        They can hear it for as long as the server listens: ``mildroute serve`` goes on for ``failover.notice`` seconds, 0 by default.
        """
        self.limiter.is_draining = True

    async def drained(self) -> bool:
        """Wait until no request is under way, at most ``failover.drain`` seconds; false if some are left."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._services.settings.failover.drain
        while self.limiter.inside and loop.time() < until:
            await asyncio.sleep(_LOOK)
        return not self.limiter.inside

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            self.begin_drain()
            await self.drained()
            self.pool.close()
            self._services.log.close()
            if self._services.feedback is not None:
                self._services.feedback.close()

    def _routes(self) -> list[BaseRoute]:
        """The hot paths first: a router looks at one after the other."""
        services, limiter = self._services, self.limiter
        authenticator, recorder = Authenticator(services.key_store, services.usage_limiter), RequestRecorder(services, self.pool)
        affinity = SessionAffinity(services.settings.policy, services.clock)
        decider = Decider(services, self.pool, affinity)
        attempts = Failover(self.pool, services.settings, services.metrics.fallback, services.clock, services.now)
        answering = CompletionsEndpoint(
            services, authenticator, decider, ResponseForwarder(attempts, services.settings, affinity), recorder
        )
        settings, refused = services.settings, services.metrics.refused
        small = ManagementEndpoints(services, self.pool, authenticator, limiter, _guard(settings.metrics_key_env))
        posted: dict[str, Handler] = {f"/v1/{path}": functools.partial(answering.answer, path) for path in _ANSWERED}
        posted |= {"/v1/route": RouteEndpoint(services, authenticator, decider, recorder).route, "/v1/feedback": small.feedback}
        if (guard := _guard(settings.admin_key_env)) is not None:
            posted["/admin/reload"] = AdminEndpoints(self.renewal, guard).reload
        open_to_all = {"/healthz": small.health, "/readyz": small.readiness, "/metrics": small.metrics, "/openapi.json": small.openapi}
        parsed: dict[str, Handler] = {"/v1/models": small.models, "/v1/models/{model:path}": small.model}
        return [
            *(Route(path, Endpoint({"POST": handler}, limiter, refused)) for path, handler in posted.items()),
            *(Route(path, Endpoint({"GET": handler}, limiter, refused)) for path, handler in parsed.items()),
            *(Route(path, Endpoint({"GET": handler}, refused=refused)) for path, handler in open_to_all.items()),
        ]

    async def _elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Paths that are not there."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        error_response = APIError(404, "this path is not served; see /openapi.json for those that are.")
        self._services.metrics.refused(error_response.status, error_response.code)
        await Request(scope, receive, send).send_error(error_response)


def create_app(services: GatewayServices) -> Gateway:
    """Put a gateway together; nothing is started, connected or read but the keys of experts from the environment.

    Args:
        services: What it is made of.

    Returns:
        An ASGI application, for uvicorn and its like.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.config import ExpertFile
        >>> from mildroute.serving.config import GatewayConfig
        >>> app = create_app(GatewayServices(GatewayConfig(), ExpertFile(Path("experts.yaml"), ()), manager=None))
        >>> app.limiter.inside
        0
    """
    return Gateway(services)


def _guard(variable: str | None) -> AdminAuth | None:
    return None if variable is None else AdminAuth(Secret(variable))
