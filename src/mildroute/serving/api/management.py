"""Endpoints beside the completions: models, health, metrics, feedback, reload."""

from __future__ import annotations

from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.serving.auth.keys import AdminAuth
from mildroute.serving.auth.limits import Authenticator
from mildroute.serving.http.endpoint import InFlightLimiter
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Request, read_object, send_document
from mildroute.serving.openapi import openapi_schema
from mildroute.serving.routing.reload import Reloader
from mildroute.serving.services import GatewayServices
from mildroute.serving.upstream.pool import AUTO_MODEL, ExpertPool

__all__ = ["AdminEndpoints", "ManagementEndpoints"]


# ``/admin``: what the operator alone may do, with a key of its own.


class AdminEndpoints:
    """Replaces the router and the keys of clients.

    Args:
        renewal: Reads them again.
        guard: Knows the operator.
    """

    def __init__(self, renewal: Reloader, guard: AdminAuth) -> None:
        self._renewal, self._guard = renewal, guard

    async def reload(self, request: Request) -> None:
        """Read the keys and the router's folder again; what is bad is refused, and what was there stays."""
        self._guard.check(request)
        clients, refusal = None, ""
        try:
            # First: who was shut out must be out, also where the router is bad.
            clients = await self._renewal.keys()
        except ArgumentError as error:
            refusal = f"{error}"
        try:
            digest = await self._renewal.router()
        except ArtifactError as error:
            said = f"{error} The keys stay as they were: {refusal}" if refusal else f"{error}"
            raise APIError(422, f"the router was not replaced: {said}", code="bad_artifact") from None
        if refusal:
            raise APIError(422, f"the router was replaced, but the keys stay as they were: {refusal}", code="bad_keys")
        told = {} if clients is None else {"clients": clients}
        await send_document(request, {"object": "mildroute.router", "router": digest, **told})


# The small paths: what there is, how it is, and what clients think of it.


class ManagementEndpoints:
    """Answers that need no expert.

    Args:
        services: Of the gateway.
        pool: Who there is.
        authenticator: Knows clients.
        limiter: Knows whether the gateway is about to stop.
        guard: Whom to let see the figures, or none for everyone.
    """

    def __init__(
        self,
        services: GatewayServices,
        pool: ExpertPool,
        authenticator: Authenticator,
        limiter: InFlightLimiter,
        guard: AdminAuth | None = None,
    ) -> None:
        self._services, self._pool, self._authenticator, self._limiter, self._guard = services, pool, authenticator, limiter, guard
        has_admin = services.settings.admin_key_env is not None
        self._description = openapi_schema(services.settings.policy.presets, with_admin=has_admin, guards_metrics=guard is not None)
        owners = dict.fromkeys((AUTO_MODEL, *services.settings.policy.routes), "mildroute") | dict.fromkeys(pool.candidates, "expert")
        self._models = {name: {"id": name, "object": "model", "created": 0, "owned_by": owner} for name, owner in owners.items()}

    async def models(self, request: Request) -> None:
        """Routes and experts."""
        self._authenticator.client_of(request)
        await send_document(request, {"object": "list", "data": [*self._models.values()]})

    async def model(self, request: Request) -> None:
        """One route or expert."""
        self._authenticator.client_of(request)
        found = self._models.get(request.scope["path_params"]["model"])
        if found is None:
            raise APIError(404, "no route or expert of this gateway has that name; see /v1/models.", code="model_not_found")
        await send_document(request, found)

    async def health(self, request: Request) -> None:
        """Whether the process is alive."""
        await send_document(request, {"status": "alive"})

    async def readiness(self, request: Request) -> None:
        """Whether it should get requests."""
        why = self._exclusion_reason()
        if why:
            await send_document(request, {"status": "not ready", "why": why}, 503)
        else:
            await send_document(request, {"status": "ready", "router": self._services.manager.predictor.digest})

    def _exclusion_reason(self) -> str:
        if self._limiter.is_draining:
            return "draining"
        try:
            self._services.manager.predictor  # noqa: B018 - it raises where there is none
        except ArtifactError:
            return "no router"
        states = self._pool.circuits().values()
        return "every expert is down" if states and all(state == "open" for state in states) else ""

    async def metrics(self, request: Request) -> None:
        """Figures for Prometheus."""
        if self._guard is not None:
            self._guard.check(request)
        page, kind = self._services.metrics.render()
        await request.answer(200, [(b"content-type", kind.encode())], page)

    async def openapi(self, request: Request) -> None:
        """The description of all paths."""
        await send_document(request, self._description)

    async def feedback(self, request: Request) -> None:
        """How good the answer to a decision was."""
        client = self._authenticator.client_of(request)
        if self._services.feedback is None:
            raise APIError(501, "this gateway keeps no log, so it takes no feedback; its operator can name a folder under log.")
        # A key that has spent its day may still say how good the answers were.
        self._authenticator.admit_free(client)
        try:
            given = await read_object(request, self._services.settings.limits)
            is_kept = self._services.feedback.write(given.get("decision_id"), given.get("score"), client.name, given.get("detail"))
        except ArgumentError as error:
            raise APIError(400, str(error)) from None
        if not is_kept:
            raise APIError(503, "the feedback could not be written down; send it again later.", retry_after=10.0)
        await send_document(request, {"object": "mildroute.feedback", "decision_id": given["decision_id"]})
