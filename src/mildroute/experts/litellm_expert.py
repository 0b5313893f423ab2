"""Any model that LiteLLM supports as an expert."""

from __future__ import annotations

import asyncio

from mildroute.experts.base import HTTPResult, TransportFailure
from mildroute.experts.clock import Clock
from mildroute.experts.litellm import LiteLLMModel
from mildroute.experts.openai import OpenAIExpert
from mildroute.experts.secrets import LogGuard
from mildroute.experts.settings import CallSettings, ModelSettings

__all__ = ["LiteLLMExpert"]


class _SDKTransport:
    """A transport that calls LiteLLM's SDK, for one event loop."""

    def __init__(self, model: LiteLLMModel, path: str, calls: CallSettings) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(calls.concurrency)
        self.closed = False
        self._model = model
        self._path = path
        self._calls = calls
        self._guard = LogGuard(model.secrets)
        self._guard.on()

    async def post(self, body: bytes) -> HTTPResult | TransportFailure:
        """Send a request and return its whole response."""
        if self.closed:
            return TransportFailure("the endpoint was closed", sent=False, final=True)
        seconds = self._calls.timeouts.total
        try:
            async with asyncio.timeout(seconds):
                answer = await self._model.call(self._path, body)
        except TimeoutError:
            return TransportFailure(f"timeout: no whole answer within {seconds:g} s", sent=True)
        if isinstance(answer, HTTPResult):
            return answer
        content = answer.model_dump_json().encode()
        limit = self._calls.largest
        return HTTPResult(200, content[:limit], len(content) > limit)

    async def close(self) -> None:
        """Refuse further calls; the SDK keeps its connections for other experts."""
        self.abandon()

    def abandon(self) -> None:
        """Refuse further calls."""
        self.closed = True
        self._guard.off()


class LiteLLMExpert(OpenAIExpert):
    """A language model of any provider that LiteLLM supports.

    Calls, retries and costs work as for an :class:`~mildroute.experts.OpenAIExpert`; LiteLLM
    translates requests and answers.

    Args:
        name: The expert's name in tables.
        model: The model in LiteLLM's notation, its prompt and its price.
        sdk_model: Object that calls the model.
        calls: Concurrency, timeouts and retries.
        clock: Source of time and randomness.
    """

    def __init__(
        self,
        name: str,
        model: ModelSettings,
        sdk_model: LiteLLMModel,
        calls: CallSettings,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, model, calls, clock=clock or Clock())
        self._secrets = sdk_model.secrets
        self._sdk_model = sdk_model

    def _make_transport(self) -> _SDKTransport:
        return _SDKTransport(self._sdk_model, self.model.prompt.path, self.calls)
