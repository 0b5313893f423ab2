"""Endpoints other than completions: models, health, metrics, feedback and reload."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from mildroute.decision.feedback import FeedbackLog
from mildroute.decision.reload import PredictorManager
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.gateway.authentication import AdminAuth, Authenticator
from mildroute.gateway.config import AUTO_MODEL, GatewayConfig
from mildroute.gateway.http.endpoint import Handler
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.in_flight import InFlightLimiter
from mildroute.gateway.http.request import Request
from mildroute.gateway.observability.metrics import CONTENT_TYPE_LATEST, GatewayMetrics
from mildroute.gateway.reload import Reloader
from mildroute.gateway.upstream.pool import ExpertPool

__all__ = ["AdminEndpoints", "ManagementEndpoints"]


class AdminEndpoints:
    """The operator's endpoints under ``/admin``, which require the admin key."""

    def __init__(self, reloader: Reloader, auth: AdminAuth) -> None:
        self._reloader = reloader
        self._auth = auth

    def handlers(self) -> dict[str, dict[str, Handler]]:
        """Return the handlers of each path, by method."""
        return {"/admin/reload": {"POST": self.reload}}

    async def reload(self, request: Request) -> None:
        """Reload keys, experts and router; reject invalid ones and keep the old ones."""
        self._auth.check(request)
        reloader = self._reloader
        # Keys come first: a revoked key must stop working even if the router is invalid.
        clients, bad_keys = await _attempt(reloader.reload_keys())
        experts, bad_experts = await _attempt(reloader.reload_experts())
        digest, bad_router = await _attempt(reloader.reload_router())
        causes = f" The keys stay as they were: {bad_keys}" if bad_keys else ""
        if bad_experts and not bad_router:
            causes = f"{bad_experts}{causes}"
            message = f"the router was replaced, but the experts stay as they were: {causes}"
            raise APIError(422, message, code="bad_experts")
        if bad_experts:
            causes = f" The experts stay as they were: {bad_experts}{causes}"
        causes = f"{bad_router}{causes}"
        if bad_router:
            message = f"the router was not replaced: {causes}"
            raise APIError(422, message, code="bad_artifact")
        if bad_keys:
            message = f"the router was replaced, but the keys stay as they were: {bad_keys}"
            raise APIError(422, message, code="bad_keys")
        counts = {"experts": experts} | ({} if clients is None else {"clients": clients})
        await request.send_json({"object": "mildroute.router", "router": digest, **counts})


async def _attempt(reload: Awaitable[Any]) -> tuple[Any, MildrouteError | None]:
    """Return the result of a reload, or the error that rejected it."""
    try:
        return await reload, None
    except MildrouteError as error:
        return None, error


class ManagementEndpoints:
    """The endpoints for models, health, readiness, metrics and feedback.

    Args:
        authenticator: Authenticates clients.
        manager: Holds the router.
        pool: The experts.
        limiter: Shows whether the gateway is draining.
        metrics: Metrics of the gateway.
        feedback: The log of scores; if ``None``, feedback is rejected.
        config: The gateway's configuration.
        metrics_auth: Checks the key for ``/metrics``; if ``None``, no key is required.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        manager: PredictorManager,
        pool: ExpertPool,
        limiter: InFlightLimiter,
        metrics: GatewayMetrics,
        feedback: FeedbackLog | None,
        config: GatewayConfig,
        metrics_auth: AdminAuth | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._manager = manager
        self._pool = pool
        self._limiter = limiter
        self._metrics = metrics
        self._feedback = feedback
        self._limits = config.limits
        self._metrics_auth = metrics_auth
        self._routes = (AUTO_MODEL, *config.routing.routes)

    async def models(self, request: Request) -> None:
        """Send the routes and experts that the client may use."""
        client = self._authenticator.authenticate(request)
        names = [name for name in (*self._routes, *self._pool.experts) if client.may_use(name)]
        await request.send_json({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> None:
        """Send one route or expert."""
        client = self._authenticator.authenticate(request)
        name = request.scope["path_params"]["model"]
        is_known = name in self._routes or name in self._pool.experts
        if not is_known or not client.may_use(name):
            raise APIError(
                404,
                "no route or expert of this gateway has that name; see /v1/models.",
                code="model_not_found",
            )
        await request.send_json(self._model(name))

    def _model(self, name: str) -> dict[str, Any]:
        owner = "mildroute" if name in self._routes else "expert"
        return {"id": name, "object": "model", "created": 0, "owned_by": owner}

    async def health(self, request: Request) -> None:
        """Respond that the process is alive."""
        await request.send_json({"status": "alive"})

    async def readiness(self, request: Request) -> None:
        """Respond with 200 if the gateway is ready for requests, and with 503 if it is not."""
        reason = self._unready_reason()
        if reason:
            await request.send_json({"status": "not ready", "reason": reason}, 503)
        else:
            predictor = self._manager.predictor
            router = None if predictor is None else predictor.digest
            await request.send_json({"status": "ready", "router": router})

    def _unready_reason(self) -> str:
        if self._limiter.is_draining:
            return "draining"
        states = self._pool.circuits().values()
        return "every expert is down" if states and all(state == "open" for state in states) else ""

    async def metrics(self, request: Request) -> None:
        """Send the metrics for Prometheus."""
        if self._metrics_auth is not None:
            self._metrics_auth.check(request)
        page = self._metrics.render()
        await request.send_response(200, [(b"content-type", CONTENT_TYPE_LATEST.encode())], page)

    async def feedback(self, request: Request) -> None:
        """Log a client's score for the response to a decision."""
        client = self._authenticator.authenticate(request)
        if self._feedback is None:
            raise APIError(
                501,
                "this gateway accepts no feedback, because it keeps no log; its operator can enable"
                " one with log.folder.",
            )
        # A key that has spent its budget may still send scores.
        await self._authenticator.reserve(client)
        try:
            document = await request.read_object(self._limits)
            is_written = self._feedback.write(
                document.get("decision_id"),
                document.get("score"),
                client.name,
                document.get("detail"),
            )
        except ArgumentError as error:
            raise APIError(400, str(error)) from None
        if not is_written:
            raise APIError(
                503,
                "the feedback could not be stored; send it again later.",
                retry_after=10.0,
            )
        decision_id = document["decision_id"]
        is_known = self._feedback.ids.has_made(decision_id)
        self._metrics.record_feedback(is_known=is_known)
        await request.send_json(
            {"object": "mildroute.feedback", "decision_id": decision_id, "known": is_known}
        )
