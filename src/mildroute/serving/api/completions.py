"""``POST /v1/chat/completions`` and its kin: read, decide, deliver, write down."""

from __future__ import annotations

import asyncio
from time import perf_counter

from mildroute.serving.auth.limits import Authenticator
from mildroute.serving.context import RequestContext, RequestRecorder
from mildroute.serving.http.body import read_request
from mildroute.serving.http.errors import APIError
from mildroute.serving.http.request import ClientDisconnectError, Request, forward_request_headers
from mildroute.serving.routing.decider import Decider
from mildroute.serving.routing.policy import request_id_of, target_headers, target_of
from mildroute.serving.services import GatewayServices
from mildroute.serving.upstream.forward import ResponseForwarder

__all__ = ["CompletionsEndpoint"]


_UNEXPECTED, _STOPPED = 500, 503
_TRACED = (b"traceparent", b"tracestate")


class CompletionsEndpoint:
    """Answers requests with an expert's answer.

    Args:
        services: Of the gateway.
        authenticator: Knows clients.
        decider: Chooses experts.
        forwarder: Brings their answers.
        recorder: Writes down what came of it.
    """

    def __init__(
        self,
        services: GatewayServices,
        authenticator: Authenticator,
        decider: Decider,
        forwarder: ResponseForwarder,
        recorder: RequestRecorder,
    ) -> None:
        self._services, self._authenticator, self._decider, self._forwarder, self._recorder = (
            services,
            authenticator,
            decider,
            forwarder,
            recorder,
        )
        self._limits = services.settings.limits

    async def answer(self, path: str, request: Request) -> None:
        """Answer one request.

        Args:
            path: ``"chat/completions"``, ``"completions"``, ``"responses"`` or ``"embeddings"``.
            request: The client's side.
        """
        client = self._authenticator.client_of(request)
        self._authenticator.admit(client)
        context = None
        try:
            body = await request.body(self._limits.body, self._limits.body_seconds)
            arrived, now = perf_counter(), self._services.now()
            context = RequestContext(self._services.new_id(), now, arrived, client, read_request(path, body, client.name))
            await self._serve(context, request)
        finally:
            self._authenticator.charge(client, 0.0 if context is None else context.dollars)

    async def _serve(self, context: RequestContext, request: Request) -> None:
        request.watch()
        try:
            await self._decide(context, request)
            await self._deliver(context, request)
        except asyncio.CancelledError:
            if not request.is_gone:
                context.status = _STOPPED
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
        except ClientDisconnectError:
            pass
        except APIError as error_response:
            context.status = error_response.status
            raise
        except BaseException:
            context.status = _UNEXPECTED
            raise
        finally:
            request.unwatch()
            if context.decided:
                request.is_counted = True
                await self._recorder.close(context)

    async def _decide(self, context: RequestContext, request: Request) -> None:
        self._trace(context, request)
        headers, parsed = request.scope["headers"], context.parsed
        context.request_id = request_id_of(headers)
        if not self._decider.is_route(parsed.model):
            self._decider.pin_expert(context)
        elif parsed.path == "embeddings":
            message = "model must name an expert here: vectors of different experts cannot be compared, so the gateway does not choose."
            raise APIError(400, message, code="model_not_chosen", param="model")
        else:
            await self._decider.choose(context, target_of(target_headers(headers), parsed.model, self._services.settings.policy))

    async def _deliver(self, context: RequestContext, request: Request) -> None:
        if not context.decision.order:
            error_response = _nobody(context)
            context.status = error_response.status
            await request.send_error(error_response, context.headers())
            return
        await self._forwarder.deliver(context, request)

    def _trace(self, context: RequestContext, request: Request) -> None:
        headers, tracing = request.scope["headers"], self._services.tracing
        if tracing.is_on:
            context.trace = tracing.begin(context.parsed.path, {name.decode("latin-1"): value.decode("latin-1") for name, value in headers})
            headers = [header for header in headers if header[0] not in _TRACED]
        context.forwarded_headers = forward_request_headers(headers)


def _nobody(context: RequestContext) -> APIError:
    """Why nobody can take a request: it is too long, or needs what no expert can do."""
    said = "; ".join(f"{name}: {why}" for name, why in context.decision.excluded.items()) or "there is none that can be called"
    return APIError(400, f"no expert can take this request ({said}); shorten it, or ask for less.", code="no_expert")
