"""The HTTP server of ``mildroute decide``, which makes decisions and calls no experts."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from mildroute._optional import needs_extra
from mildroute.decision.async_predictor import TooManyTargetsError
from mildroute.decision.decision import Decision
from mildroute.decision.outcomes import Outcome
from mildroute.decision.prediction import Prediction
from mildroute.decision.prompt import RoutingInput
from mildroute.decision.questions import ExpertLabels, QuestionError, answer_questions
from mildroute.decision.request import DecisionRequest
from mildroute.decision.service import Caller, DecisionService
from mildroute.decision.targets import TARGETS, parse_target
from mildroute.exceptions import ArgumentError

with needs_extra("", extra="serve", user="mildroute decide"):
    import uvicorn
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route

    from mildroute.decision import openai_decisions
    from mildroute.decision.openai_decisions import DecisionsRequest
    from mildroute.decision.system_one import (
        MODEL_NAME,
        SystemOneRequest,
        body_of_errors,
        body_of_message,
        read_document,
    )

__all__ = ["ServerLimits", "create_decision_app", "serve_decisions"]

_TARGET_HEADERS = {f"x-mildroute-{name.replace('_', '-')}": name for name in TARGETS}
_REQUEST_ID = "x-request-id"
_MAX_ID_LENGTH = 256
_MAX_REASON_LENGTH = 200
# Maximum characters that a fast encoder reads in about two milliseconds.
_MAX_SHORT_CHARACTERS = 2_000
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OUTCOME = TypeAdapter(Outcome)

Labels = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True)
class ServerLimits:
    """Limits on clients' requests.

    Args:
        max_body_bytes: Maximum size of a body in bytes.
        body_seconds: Maximum seconds for a body to arrive.
        max_connections: Maximum concurrent connections and requests; more get status 503.

    Example:
        >>> ServerLimits().max_body_bytes
        2097152
    """

    max_body_bytes: int = 2 * 1024 * 1024
    body_seconds: float = 10.0
    max_connections: int = 1000


class _HTTPError(Exception):
    """A request that is refused with a status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def create_decision_app(
    service: DecisionService,
    labels: Labels | None = None,
    key: str | None = None,
    limits: ServerLimits | None = None,
) -> Starlette:
    """Return a decision service's ASGI application, which closes the service at shutdown.

    Args:
        service: The service, which makes and logs decisions.
        labels: Expert or experts for each label that clients use.
        key: The key that clients send as a bearer token; ``None`` requires no key.
        limits: Limits on requests.
    """
    if labels and service.experts:
        ExpertLabels(service.experts, labels)
    endpoints = _Endpoints(service, labels, limits or ServerLimits())
    guard = _Guard(key)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        service.close()

    post = {
        "/v1/systemone": endpoints.system_one,
        "/v1/decisions": endpoints.decisions,
        "/v1/feedback": endpoints.feedback,
        "/v1/outcomes": endpoints.outcomes,
    }
    routes = [Route(path, guard.protect(each), methods=["POST"]) for path, each in post.items()]
    routes.append(Route("/v1/models", guard.protect(endpoints.models)))
    routes.append(Route("/healthz", endpoints.health))
    routes.append(Route("/readyz", endpoints.readiness))
    handlers: dict[Any, Any] = {
        404: _handle_routing_error,
        405: _handle_routing_error,
        500: _handle_internal_error,
    }
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


def serve_decisions(
    service: DecisionService,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    labels: Labels | None = None,
    key: str | None = None,
    limits: ServerLimits | None = None,
) -> None:
    """Serve decisions until SIGINT or SIGTERM.

    Args:
        service: The service, which makes and logs decisions; it is closed at shutdown.
        host: Address to listen on.
        port: Port to listen on; 0 picks a free one.
        announce: Called with the base URL once the server listens.
        labels: Expert or experts for each label that clients use.
        key: The key that clients send as a bearer token; ``None`` requires no key.
        limits: Limits on requests.

    Raises:
        ArgumentError: The port cannot be opened.
    """
    limits = limits or ServerLimits()
    config = uvicorn.Config(
        create_decision_app(service, labels, key, limits),
        host=host,
        port=port,
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=75,
        limit_concurrency=limits.max_connections,
        timeout_graceful_shutdown=10,
    )
    with _listening(host, port) as listener:
        _Server(config, announce).run([listener])


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ArgumentError(
            f"the server must be able to listen on {host} at port {port}, got: {error.strerror};"
            " give another --port or --host."
        ) from None


class _Server(uvicorn.Server):
    """A server that announces its address at startup."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[str], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            host = self.config.host
            port = self.servers[0].sockets[0].getsockname()[1]
            self._announce(f"http://{f'[{host}]' if ':' in host else host}:{port}")


Handler = Callable[[Request], Awaitable[Response]]


class _Guard:
    """A check that admits clients with the key or, if there is no key, refuses other websites."""

    def __init__(self, key: str | None) -> None:
        self._key = None if key is None else f"Bearer {key}".encode()

    def protect(self, handler: Handler) -> Handler:
        """Wrap a handler so that it refuses other requests."""

        async def guarded(request: Request) -> Response:
            if self._key is None:
                origin = request.headers.get("origin")
                if origin is not None and _hostname(origin) not in _LOOPBACK:
                    return _message(403, "a website must not use this server, which has no key.")
            else:
                sent = request.headers.get("authorization", "").encode("latin-1")
                if not hmac.compare_digest(sent, self._key):
                    response = _message(401, "the authorization header must hold the key.")
                    response.headers["www-authenticate"] = "Bearer"
                    return response
            try:
                return await handler(request)
            except _HTTPError as error:
                response = _message(error.status, str(error))
                if error.status in (408, 413):
                    # The rest of the body stays unread.
                    response.headers["connection"] = "close"
                return response
            except ClientDisconnect:
                return _message(400, "the client disconnected.")

        return guarded


class _Endpoints:
    """The endpoints of a decision service."""

    def __init__(
        self, service: DecisionService, labels: Labels | None, limits: ServerLimits
    ) -> None:
        self._service = service
        self._labels = labels
        self._limits = limits
        routing = service.config.routing
        self._routed = RoutingInput(routing.input, routing.input_characters)

    async def system_one(self, request: Request) -> Response:
        """Answer questions in the format of System One."""
        document = await self._read(request, status=422)
        try:
            parsed = SystemOneRequest.read(document)
            return await self._answer(parsed, request, "systemone")
        except (ValidationError, QuestionError) as error:
            return _json(422, body_of_errors(error))
        except ArgumentError as error:
            return _message(422, str(error))
        except TooManyTargetsError as error:
            return _message(429, str(error))

    async def decisions(self, request: Request) -> Response:
        """Answer questions in OpenAI's format, or System One's if the body has a state."""
        try:
            document = await self._read(request)
        except _HTTPError as error:
            return _json(error.status, openai_decisions.error_body(str(error)))
        if isinstance(document, dict) and "state" in document and "input" not in document:
            request.state.document = document
            return await self.system_one(request)
        try:
            parsed = DecisionsRequest.read(document)
            return await self._answer(parsed, request, "decisions")
        except (ValidationError, QuestionError) as error:
            return _json(400, openai_decisions.error_body(error))
        except ArgumentError as error:
            return _json(400, openai_decisions.error_body(str(error)))
        except TooManyTargetsError as error:
            return _json(429, openai_decisions.error_body(str(error), "rate_limit_exceeded"))

    async def feedback(self, request: Request) -> Response:
        """Log the score of a decision's answer."""
        document = _object(await self._read(request))
        try:
            known = self._service.report_score(
                document.get("decision_id"),  # type: ignore[arg-type]
                document.get("score"),  # type: ignore[arg-type]
                document.get("detail"),
            )
        except ArgumentError as error:
            return _message(400, str(error))
        except OSError as error:
            return _message(503, str(error))
        return _json(200, to_json({"decision_id": document["decision_id"], "known": known}))

    async def outcomes(self, request: Request) -> Response:
        """Log the outcome and the bill of a decision's call."""
        document = _object(await self._read(request))
        decision_id = document.pop("decision_id", None)
        if not isinstance(decision_id, str) or not 0 < len(decision_id) <= _MAX_ID_LENGTH:
            return _message(400, "decision_id must be the id of an answered decision.")
        try:
            outcome = _OUTCOME.validate_python(document)
        except ValidationError as error:
            return _json(422, body_of_errors(error))
        except ArgumentError as error:
            return _message(400, str(error))
        experts = self._service.experts
        if experts and outcome.expert not in experts:
            return _message(400, f"expert must be one of {', '.join(experts)}.")
        outcome = replace(outcome, reason=outcome.reason[:_MAX_REASON_LENGTH])
        if not self._service.report_outcome(decision_id, outcome):
            return _message(503, "the outcome could not be stored; is there a log?")
        return _json(200, to_json({"decision_id": decision_id}))

    async def models(self, _: Request) -> Response:
        """List the only model in both formats."""
        model = {
            "id": MODEL_NAME,
            "object": "model",
            "owned_by": "mildroute",
            "name": MODEL_NAME,
            "description": f"Decides between {', '.join(self._service.experts):.500}.",
            "release_date": "2026-11-20",
        }
        return _json(200, to_json({"object": "list", "data": [model], "models": [model]}))

    async def health(self, _: Request) -> Response:
        """Report that the process is alive."""
        return _json(200, b'{"status":"ok"}')

    async def readiness(self, _: Request) -> Response:
        """Report the router and the experts; respond with 503 until there are experts."""
        predictor = self._service.manager.predictor
        state = {
            "router": "" if predictor is None else predictor.digest,
            "experts": self._service.experts,
            "ignores_answers": self._service.ignores_answers,
        }
        return _json(200 if self._service.experts else 503, to_json(state))

    async def _answer(
        self, parsed: SystemOneRequest | DecisionsRequest, request: Request, path: str
    ) -> Response:
        questions = parsed.resolve(ExpertLabels(self._service.experts, self._labels))
        text = parsed.text(self._routed)
        headers = request.headers
        decision_request = DecisionRequest(
            text,
            target=_target_of(headers),
            request_id=_request_id(headers),
        )
        caller = Caller(path, parsed.model[:_MAX_ID_LENGTH])
        router = _RequestRouter(self._service, decision_request, caller)
        return _json(200, parsed.render(await answer_questions(questions, router), len(text)))

    async def _read(self, request: Request, status: int = 400) -> Any:
        """Return the decoded body, or raise an error if it exceeds the limits."""
        if hasattr(request.state, "document"):
            return request.state.document
        if request.headers.get("content-encoding", "identity") != "identity":
            raise _HTTPError(415, "the body must not be compressed; send it uncompressed.")
        limit = self._limits.max_body_bytes
        too_large_error = _HTTPError(413, f"the body must have at most {limit:,} bytes.")
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > limit:
            raise too_large_error
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > limit:
                        raise too_large_error
        except TimeoutError:
            raise _HTTPError(408, "the body did not arrive in time.") from None
        try:
            return read_document(body)
        except ArgumentError as error:
            raise _HTTPError(status, str(error)) from None


class _RequestRouter:
    """An adapter that answers one request's questions with the service."""

    def __init__(self, service: DecisionService, request: DecisionRequest, caller: Caller) -> None:
        self._service = service
        self._request = request
        self._caller = caller

    async def decide(self, experts: Collection[str]) -> Decision:
        """Choose between some experts and log the decision."""
        statuses = {name: each for name, each in self._service.statuses.items() if name in experts}
        predictor = self._service.manager.predictor
        is_short = self._request.target is None and len(self._request.text) <= _MAX_SHORT_CHARACTERS
        if predictor is not None and is_short and predictor.encodes_quickly:
            # A thread would take longer than the decision: 2.1 instead of 1.4 ms of CPU time. Other
            # requests get a turn between the questions of this one.
            await asyncio.sleep(0)
            return self._service.decide(self._request, statuses, caller=self._caller)
        return await self._service.adecide(self._request, statuses, caller=self._caller)

    async def predict(self) -> Prediction | None:
        """Return the router's prediction for the input."""
        return await self._service.apredict(self._request)


def _hostname(origin: str) -> str | None:
    try:
        return urlsplit(origin).hostname
    except ValueError:
        return None


def _target_of(headers: Mapping[str, str]) -> Any:
    sent = {name: headers[header] for header, name in _TARGET_HEADERS.items() if header in headers}
    if len(sent) > 1:
        raise ArgumentError(f"give one of price_weight, quality and budget, got {', '.join(sent)}.")
    for name, value in sent.items():
        return parse_target(name, value.strip())
    return None


def _request_id(headers: Mapping[str, str]) -> str:
    sent = headers.get(_REQUEST_ID, "").strip()
    if len(sent) > _MAX_ID_LENGTH or not sent.isascii():
        raise ArgumentError(
            f"x-request-id must be at most {_MAX_ID_LENGTH} printable ASCII characters."
        )
    return sent


def _object(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise _HTTPError(400, "the body must be a JSON object.")
    return document


def _json(status: int, body: bytes) -> Response:
    return Response(body, status, media_type="application/json")


def _message(status: int, message: str) -> Response:
    return _json(status, body_of_message(message))


async def _handle_routing_error(_: Request, error: Any) -> Response:
    headers = getattr(error, "headers", None) or {}
    message = "this path is not served." if error.status_code == 404 else "use another method."
    response = _message(error.status_code, message)
    response.headers.update(headers)
    return response


async def _handle_internal_error(_: Request, __: Exception) -> Response:
    return _message(500, "the server failed; its log has the details.")
