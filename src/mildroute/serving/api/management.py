"""Endpoints beside the completions: models, health, metrics, feedback, reload, keys."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs

from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.serving.auth import keys
from mildroute.serving.auth.database import DatabaseError, is_database_url
from mildroute.serving.auth.keys import AdminAuth, UnknownClientError, describe_page, revoke_key
from mildroute.serving.auth.limits import Authenticator
from mildroute.serving.config import AUTO_MODEL, GatewayConfig
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import Handler, InFlightLimiter, Request
from mildroute.serving.observability.feedback import FeedbackLog
from mildroute.serving.observability.logs import log_event
from mildroute.serving.observability.metrics import GatewayMetrics
from mildroute.serving.routing.reload import CanaryError, PredictorManager, Reloader
from mildroute.serving.upstream.pool import ExpertPool

__all__ = ["AdminEndpoints", "ManagementEndpoints"]


_LOG = logging.getLogger(__name__)
# Seconds in which new keys must be in their database.
_CREATE_TIMEOUT = 60.0
_RETRY_AFTER = 5.0
# Clients of one page.
_LARGEST_PAGE = 1000


class AdminEndpoints:
    """``/admin``, for the operator, with a key of its own."""

    def __init__(self, reloader: Reloader, auth: AdminAuth, config: GatewayConfig) -> None:
        self._reloader = reloader
        self._auth = auth
        self._keys = config.keys
        self._limits = config.limits
        # A database has one writer at a time, and the machine has other work.
        self._one_at_a_time = asyncio.Lock()

    def handlers(self) -> dict[str, dict[str, Handler]]:
        """Of each path, by method."""
        return {
            "/admin/reload": {"POST": self.reload},
            "/admin/keys": {"POST": self.create_keys, "GET": self.list_keys},
            "/admin/keys/{name}": {"DELETE": self.revoke_key},
        }

    async def reload(self, request: Request) -> None:
        """Reload keys, experts and router; what is invalid is rejected, and the old one stays.

        With several workers all of them do, and the response comes when they have.
        """
        self._auth.check(request)
        others = await self._reloader.reload_others()
        reloader = self._reloader
        # The keys first: a client that was shut out must be out, even if the router is bad.
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
        if isinstance(bad_router, CanaryError):
            message = f"the router serves without its canary: {causes}"
            raise APIError(422, message, code="bad_canary")
        if bad_router:
            message = f"the router was not replaced: {causes}"
            raise APIError(422, message, code="bad_artifact")
        if bad_keys:
            message = f"the router was replaced, but the keys stay as they were: {bad_keys}"
            raise APIError(422, message, code="bad_keys")
        if not all(others):
            message = (
                f"{others.count(False)} of {len(others) + 1} workers did not take the router, the"
                " experts or the keys; their log says why."
            )
            raise APIError(422, message, code="not_reloaded")
        counts = {"experts": experts} | ({} if clients is None else {"clients": clients})
        counts |= {"workers": len(others) + 1} if others else {}
        await request.send_json({"object": "mildroute.router", "router": digest, **counts})

    async def create_keys(self, request: Request) -> None:
        """Make keys for one or many new clients of a database; the response alone shows them.

        A process of its own parses, checks and writes them: 10,000 clients made the event loop late
        by 24 to 58 ms in a thread, by 2 to 5 ms so, in one run each of ten such requests.
        """
        url = self._database(request)
        body = bytes(await request.body(self._limits))
        async with self._one_at_a_time:
            head, response = await asyncio.to_thread(_create_keys, url, body)
        if head["status"] != 200:
            raise APIError(head["status"], head["message"], retry_after=head.get("retry_after"))
        del head["status"]
        _audit("keys created", request, **head)
        await request.send_response(200, [(b"content-type", b"application/json")], response)

    async def list_keys(self, request: Request) -> None:
        """A page of the clients of a database, without hashes."""
        url = self._database(request)
        after, limit = _page(request)
        with _database_errors():
            # One more tells whether there are more.
            rows = await asyncio.to_thread(describe_page, url, time.time(), after, limit + 1)
        page = {"object": "list", "data": rows[:limit], "has_more": len(rows) > limit}
        await request.send_json(page)

    async def revoke_key(self, request: Request) -> None:
        """Let the keys of a client of a database expire now."""
        url = self._database(request)
        name = request.scope["path_params"]["name"]
        with _database_errors():
            await asyncio.to_thread(revoke_key, url, name, time.time())
        _audit("keys revoked", request, name=name)
        await request.send_json({"object": "mildroute.key", "name": name, "status": "expired"})

    def _database(self, request: Request) -> str:
        """URL of the database of keys; an APIError if there is none, or no operator asks."""
        self._auth.check(request)
        if self._keys is None or not is_database_url(self._keys):
            raise APIError(
                501,
                "keys are made and revoked here if they are in a database, and this gateway has a"
                " key file or none; run 'mildroute keys', or copy the file to a database with"
                " 'mildroute keys import' and set keys to its URL.",
                code="no_key_database",
            )
        return str(self._keys)


def _create_keys(url: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """Head and body of the response to a request for new keys."""
    command = [sys.executable, "-m", keys.__name__]
    given = f"{url}\n".encode() + body
    try:
        done = subprocess.run(  # noqa: S603 - our own module
            command, input=given, stdout=subprocess.PIPE, timeout=_CREATE_TIMEOUT, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        # Not its text: it may hold the output, and with it keys.
        _LOG.error("keys could not be made: %s", type(error).__name__)
        message = "the keys could not be made; the gateway's log says why."
        return {"status": 503, "message": message}, b""
    head, _, response = done.stdout.partition(b"\n")
    return json.loads(head), response


@contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except UnknownClientError as error:
        raise APIError(404, str(error)) from None
    except DatabaseError as error:
        raise APIError(503, str(error), retry_after=_RETRY_AFTER) from None


def _page(request: Request) -> tuple[str, int]:
    """The name after which a page begins, and its most clients."""
    query = parse_qs(request.scope["query_string"].decode("latin-1"))
    limit = query.get("limit", ["100"])[-1]
    if not re.fullmatch("[0-9]{1,4}", limit) or not 1 <= int(limit) <= _LARGEST_PAGE:
        raise APIError(400, f"limit must be a number from 1 to {_LARGEST_PAGE:,}.", param="limit")
    return query.get("after", [""])[-1], int(limit)


def _audit(event: str, request: Request, **fields: object) -> None:
    """Log what an operator has changed, and from which address; never a key."""
    client = request.scope.get("client")
    log_event(_LOG, logging.INFO, event, client__address=client and client[0], **fields)


async def _attempt(reload: Awaitable[Any]) -> tuple[Any, MildrouteError | None]:
    """The result of a reload, or why it was rejected."""
    try:
        return await reload, None
    except MildrouteError as error:
        return None, error


class ManagementEndpoints:
    """Models, health, readiness, metrics and feedback.

    Args:
        feedback: Where scores are logged, or none: then the gateway takes none.
        metrics_auth: Checks the key for ``/metrics``, or none: then it needs no key.
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
        """Routes and experts that the client may use."""
        client = self._authenticator.authenticate(request)
        names = [name for name in (*self._routes, *self._pool.experts) if client.may_use(name)]
        await request.send_json({"object": "list", "data": [self._model(name) for name in names]})

    async def model(self, request: Request) -> None:
        """One route or expert."""
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
        """Whether the process is alive."""
        await request.send_json({"status": "alive"})

    async def readiness(self, request: Request) -> None:
        """Whether it should get requests."""
        reason = self._unready_reason()
        if reason:
            await request.send_json({"status": "not ready", "reason": reason}, 503)
        else:
            predictor, canary = self._manager.predictor, self._manager.canary
            further = {} if canary is None else {"canary": canary.predictor.digest}
            router = None if predictor is None else predictor.digest
            await request.send_json({"status": "ready", "router": router, **further})

    def _unready_reason(self) -> str:
        if self._limiter.is_draining:
            return "draining"
        states = self._pool.circuits().values()
        return "every expert is down" if states and all(state == "open" for state in states) else ""

    async def metrics(self, request: Request) -> None:
        """Metrics for Prometheus."""
        if self._metrics_auth is not None:
            self._metrics_auth.check(request)
        accept = request.header(b"accept") or b""
        page, content_type = await self._metrics.page(accept.decode("latin-1"))
        await request.send_response(200, [(b"content-type", content_type.encode())], page)

    async def feedback(self, request: Request) -> None:
        """A score for the response to a decision."""
        client = self._authenticator.authenticate(request)
        if self._feedback is None:
            raise APIError(
                501,
                "this gateway keeps no log, so it takes no feedback; its operator can name a folder"
                " under log.",
            )
        # A key that has spent its budget may still send scores.
        await self._authenticator.admit_free(client, request)
        try:
            given = await request.json(self._limits)
            is_written = self._feedback.write(
                given.get("decision_id"), given.get("score"), client.name, given.get("detail")
            )
        except ArgumentError as error:
            raise APIError(400, str(error)) from None
        if not is_written:
            raise APIError(
                503,
                "the feedback could not be written down; send it again later.",
                retry_after=10.0,
            )
        name = given["decision_id"]
        known = self._feedback.ids.has_made(name)
        await request.send_json(
            {"object": "mildroute.feedback", "decision_id": name, "known": known}
        )
