"""The gateway as an ASGI application."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mildroute.decision.affinity import SessionAffinity
from mildroute.decision.decider import Decider
from mildroute.decision.exploration import ExplorationBudget
from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.log import DecisionLog
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import MissingExtraError
from mildroute.experts.config import ExpertFile
from mildroute.experts.secrets import Secret
from mildroute.gateway.api.dashboard import Dashboard
from mildroute.gateway.api.decision_model import DecisionModelEndpoint
from mildroute.gateway.api.management import AdminEndpoints, ManagementEndpoints
from mildroute.gateway.api.route import RouteEndpoint
from mildroute.gateway.authentication import AdminAuth, Authenticator
from mildroute.gateway.config import GatewayConfig
from mildroute.gateway.http.body import PATHS
from mildroute.gateway.http.decoder import BodyDecoder
from mildroute.gateway.http.endpoint import Endpoint, Handler
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.in_flight import InFlightLimiter
from mildroute.gateway.http.origin import check_local
from mildroute.gateway.http.request import Receive, Request, Scope, Send
from mildroute.gateway.keys import KeyStore
from mildroute.gateway.limits.base import Limits
from mildroute.gateway.limits.local import LocalLimits
from mildroute.gateway.observability.logs import AccessLog
from mildroute.gateway.observability.metrics import GatewayMetrics
from mildroute.gateway.observability.tracing import Tracing
from mildroute.gateway.openapi import openapi_schema
from mildroute.gateway.parent import stop_with_parent
from mildroute.gateway.proxy import Proxy
from mildroute.gateway.recorder import RequestRecorder
from mildroute.gateway.reload import Reloader
from mildroute.gateway.routing.decider import RequestDecider
from mildroute.gateway.sampling.sampler import Sampler
from mildroute.gateway.upstream.failover import Failover
from mildroute.gateway.upstream.pool import ExpertPool, check_prices

__all__ = ["Gateway", "GatewayServices", "create_app"]


try:
    from starlette.routing import Route, Router
    from starlette.types import ASGIApp
except ImportError:
    raise MissingExtraError.for_package(
        "starlette", extra="serve", user="mildroute.gateway"
    ) from None


# Paths that the web page calls.
_PLAYGROUND = ("/v1/route", "/v1/chat/completions")
_POLL_INTERVAL = 0.02
# The handlers of each path, by HTTP method.
_Handlers = dict[str, dict[str, Handler]]


@dataclass(frozen=True)
class GatewayServices:
    """The services that a gateway uses, and closes at the end of its lifespan.

    Args:
        config: The gateway's configuration.
        experts: Experts that the gateway can call.
        manager: Holds the router.
        key_store: Clients that may send requests; defaults to any client.
        limits: Rate limits and budgets of clients.
        log: The decision log; if ``None``, no decisions are logged.
        feedback: The log of scores; if ``None``, feedback is rejected.
        metrics: Metrics of this gateway.
        tracing: Starts traces; by default only if a provider is set for the process.
        shadow: Holds a second router whose choices are only logged; ``None`` means no shadow.
        sampler: Sends a share of requests to the other experts as well; if ``None``, nothing is
            sampled.
        is_public: Whether a gateway without keys accepts any ``Host`` header.
        is_worker: Whether several processes serve the port. ``/admin`` is then not served, because
            a request would reach only one of the processes.
        clock: Returns monotonic seconds.
        now: Returns seconds since 1970.
        random: Returns uniform random numbers in [0, 1).

    Example:
        >>> from pathlib import Path
        >>> experts = ExpertFile(Path("experts.yaml"), ())
        >>> GatewayServices(GatewayConfig(), experts, manager=None).key_store
        KeyStore(anyone)
    """

    config: GatewayConfig
    experts: ExpertFile
    manager: PredictorManager
    key_store: KeyStore = field(default_factory=KeyStore)
    limits: Limits = field(default_factory=LocalLimits)
    log: DecisionLog | None = None
    feedback: FeedbackLog | None = None
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    tracing: Tracing = field(default_factory=Tracing)
    shadow: PredictorManager | None = None
    sampler: Sampler | None = None
    is_public: bool = False
    is_worker: bool = False
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    random: Callable[[], float] = random.random

    def close(self) -> None:
        """Close the logs, the traces and the routers."""
        for log in (self.log, self.feedback):
            if log is not None:
                log.close()
        self.tracing.close()
        for manager in (self.manager, self.shadow):
            if manager is not None:
                manager.close()


class Gateway:
    """An ASGI application that routes requests to experts and forwards their responses.

    To stop, a server should call :meth:`begin_drain`, keep listening for
    ``failover.shutdown_delay`` seconds so that load balancers notice and send requests elsewhere,
    give requests in flight ``failover.drain_timeout`` seconds, and end the lifespan. A server that
    only ends the lifespan drains the gateway too, but too late for load balancers to notice.

    Args:
        services: The services that the gateway uses.

    Attributes:
        services: The services that the gateway uses.
        pool: The experts.
        limiter: Counts and limits the requests in flight.
        reloader: Reloads the router, the experts and the keys.
        admin: The ASGI application of the admin port; ``None`` without an admin port.

    Example:
        >>> Gateway.__name__
        'Gateway'
    """

    def __init__(self, services: GatewayServices) -> None:
        config = services.config
        self.services = services
        metrics = services.metrics
        self.limiter = InFlightLimiter(
            config.limits.max_in_flight, config.limits.max_bytes_in_flight
        )
        self.pool = ExpertPool(services.experts, config, services.clock, metrics)
        has_budgets = services.key_store.has_budgets
        check_prices(self.pool.callable.values(), config, has_budgets=has_budgets)
        self.reloader = Reloader(
            services.manager,
            services.key_store,
            config,
            self.pool,
            metrics,
            is_worker=services.is_worker,
        )
        self.admin: ASGIApp | None = None
        self._app = self._build_apps()
        metrics.watch(
            in_flight=lambda: float(self.limiter.in_flight),
            circuits=self.pool.circuits,
            budgets=services.limits.budgets,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        await self._app(scope, receive, send)

    def begin_drain(self) -> None:
        """Tell load balancers through ``/readyz`` to stop sending requests.

        Requests that still arrive are served. Load balancers can read ``/readyz`` for as long as
        the server listens: ``mildroute serve`` keeps listening for ``failover.shutdown_delay``
        seconds, 0 by default.
        """
        self.limiter.is_draining = True

    async def drained(self) -> bool:
        """Wait until no request is in flight, for at most ``failover.drain_timeout`` seconds.

        Returns:
            Whether all requests have ended.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self.services.config.failover.drain_timeout
        while self.limiter.in_flight and loop.time() < until:
            await asyncio.sleep(_POLL_INTERVAL)
        return not self.limiter.in_flight

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        services = self.services
        config = services.config
        await services.limits.start()
        background = [
            asyncio.create_task(self.reloader.watch_keys()),
            asyncio.create_task(services.manager.watch(config.reload_interval)),
        ]
        if services.is_worker:
            background.append(asyncio.create_task(services.metrics.refresh_forever()))
            background.append(asyncio.create_task(stop_with_parent()))
        if services.sampler is not None:
            services.sampler.start()
        try:
            yield
        finally:
            for task in background:
                task.cancel()
            self.begin_drain()
            await self.drained()
            if services.sampler is not None:
                await services.sampler.stop()
            await services.limits.close()
            await self.pool.close()
            services.close()

    def _build_apps(self) -> ASGIApp:
        """Build the application for clients, and the one for the admin port if there is one."""
        services, config = self.services, self.services.config
        authenticator = Authenticator(services.key_store, services.limits)
        management = ManagementEndpoints(
            authenticator,
            services.manager,
            self.pool,
            self.limiter,
            services.metrics,
            services.feedback,
            config,
            _admin_auth(config.metrics_key_env),
        )
        # Hot paths come first, because the router tries routes in order.
        post = self._post_handlers(authenticator) | {"/v1/feedback": management.feedback}
        limited: _Handlers = {path: {"POST": handler} for path, handler in post.items()}
        limited["/v1/models"] = {"GET": management.models}
        limited["/v1/models/{model:path}"] = {"GET": management.model}
        # Probes respond even while too many requests are in flight.
        probes: _Handlers = {
            "/healthz": {"GET": management.health},
            "/readyz": {"GET": management.readiness},
        }
        operator: _Handlers = {"/metrics": {"GET": management.metrics}}
        admin_auth = _admin_auth(config.admin_key_env)
        if admin_auth is not None and not services.is_worker:
            operator |= AdminEndpoints(self.reloader, admin_auth).handlers()
        dashboard = self._build_dashboard(admin_auth)
        if dashboard is not None:
            operator |= dashboard.handlers()
        if config.admin_port is None:
            return self._build_app(limited, probes | operator, lifespan=self._lifespan)
        playground: _Handlers = {}
        if dashboard is not None:
            playground = {path: {"POST": dashboard.guard(post[path])} for path in _PLAYGROUND}
        self.admin = self._build_app(playground, probes | operator)
        return self._build_app(limited, probes, lifespan=self._lifespan)

    def _build_dashboard(self, admin_auth: AdminAuth | None) -> Dashboard | None:
        services, config = self.services, self.services.config
        if not config.page:
            return None
        return Dashboard(
            admin_auth or _admin_auth(config.metrics_key_env),
            services.key_store,
            services.manager,
            self.pool,
            self.limiter,
            services.metrics,
        )

    def _build_app(self, limited: _Handlers, unlimited: _Handlers, lifespan: Any = None) -> ASGIApp:
        """Build an application from paths with and without a limit on requests in flight."""
        config = self.services.config
        paths = [path.replace(":path}", "}") for path in (*limited, *unlimited, "/openapi.json")]
        document = openapi_schema(
            config.routing.presets, paths, with_metrics_key=config.metrics_key_env is not None
        )

        async def describe(request: Request) -> None:
            await request.send_json(document)

        unlimited = unlimited | {"/openapi.json": {"GET": describe}}
        routes = [
            Route(path, Endpoint(methods, limiter, self.services.metrics.record_rejection))
            for handlers, limiter in ((limited, self.limiter), (unlimited, None))
            for path, methods in handlers.items()
        ]
        router = Router(routes, redirect_slashes=False, default=self._not_found, lifespan=lifespan)
        guarded = _LocalGuard(router, self.services)
        return AccessLog(guarded) if config.logging.access else guarded

    def _post_handlers(self, authenticator: Authenticator) -> dict[str, Handler]:
        """Return the handlers of the endpoints that make decisions."""
        services, config = self.services, self.services.config
        recorder = RequestRecorder(
            services.log,
            services.metrics,
            services.tracing,
            baseline=lambda: self.pool.baseline,
            log_prompts=config.log.log_prompts,
            now=services.now,
            ids=None if services.feedback is None else services.feedback.ids,
        )
        decider = self._build_decider(SessionAffinity(config.routing, services.clock))
        failover = Failover(
            self.pool,
            config.failover,
            max_response_bytes=config.limits.max_response_bytes,
            clock=services.clock,
            now=services.now,
        )
        decoder = BodyDecoder()
        proxy = Proxy(
            authenticator,
            decoder,
            decider,
            self.pool,
            failover,
            recorder,
            config,
            services.sampler,
        )
        if services.sampler is not None:
            services.sampler.attach(self.pool, failover)
        handlers: dict[str, Handler] = {
            f"/v1/{path}": functools.partial(proxy.handle, path) for path in PATHS
        }
        route = RouteEndpoint(authenticator, decoder, decider, recorder, config)
        handlers["/v1/route"] = route.handle
        questions = DecisionModelEndpoint(
            authenticator, decoder, decider, recorder, self.pool, services.manager, config
        )
        for path in ("systemone", "decisions"):
            handlers[f"/v1/{path}"] = functools.partial(questions.handle, path)
        return handlers

    def _build_decider(self, affinity: SessionAffinity) -> RequestDecider:
        services, routing = self.services, self.services.config.routing
        exploration = ExplorationBudget(routing.exploration, services.now)
        decider = Decider(
            None, routing, affinity=affinity, exploration=exploration, random=services.random
        )
        return RequestDecider(decider, services.manager, self.pool, routing, shadow=services.shadow)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        error = APIError(404, "this path is not served; see /openapi.json for the paths that are.")
        self.services.metrics.record_rejection(error.status, error.code)
        await Request(scope, receive, send).send_error(error)


class _LocalGuard:
    """A guard that refuses requests from websites on every path of a gateway without keys."""

    def __init__(self, app: ASGIApp, services: GatewayServices) -> None:
        self.app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = self._services
        if scope["type"] == "http" and services.key_store.is_open and not services.is_public:
            request = Request(scope, receive, send)
            try:
                check_local(request)
            except APIError as error:
                services.metrics.record_rejection(error.status, error.code)
                await request.send_error(error)
                return
        await self.app(scope, receive, send)


def create_app(services: GatewayServices) -> Gateway:
    """Build a gateway.

    Building starts no task and opens no connection. It only reads the experts' keys from the
    environment.

    Args:
        services: The services that the gateway uses.

    Returns:
        An ASGI application, for uvicorn or another ASGI server.

    Example:
        >>> from pathlib import Path
        >>> from mildroute.experts.config import ExpertFile
        >>> from mildroute.gateway.config import GatewayConfig
        >>> experts = ExpertFile(Path("experts.yaml"), ())
        >>> app = create_app(GatewayServices(GatewayConfig(), experts, manager=None))
        >>> app.limiter.in_flight
        0
    """
    return Gateway(services)


def _admin_auth(variable: str | None) -> AdminAuth | None:
    return None if variable is None else AdminAuth(Secret(variable))
