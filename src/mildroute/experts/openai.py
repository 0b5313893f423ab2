"""Any OpenAI-compatible HTTP endpoint, or any model of LiteLLM, as an expert."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.exceptions import ArgumentError
from mildroute.experts._attempt import AttemptOutcome, classify_attempt
from mildroute.experts._http import HTTPTransport, Transport
from mildroute.experts.base import (
    RESERVE_RETRY,
    Answer,
    Clock,
    Completion,
    CostEstimate,
    Expert,
    HTTPResult,
    Query,
    TransportFailure,
)
from mildroute.experts.litellm import LiteLLMModel
from mildroute.experts.retry import AdaptiveRateLimiter
from mildroute.experts.secrets import LogGuard, RequestHeaders, Secret, SecretSet
from mildroute.experts.settings import CallSettings, ModelSettings

__all__ = ["LiteLLMExpert", "OpenAIExpert"]


_DEFAULT_CALLS = CallSettings()
_DEFAULT_CLOCK = Clock()


@dataclass
class _Course:
    """How the attempts at one query went."""

    attempts: int = 0
    failures: int = 0
    refusals: int = 0
    first_refusal: float = 0.0
    unconfirmed_cost: float = 0.0
    seconds: float = 0.0


class OpenAIExpert(Expert):
    """A language model behind an OpenAI-compatible address.

    Transient failures are retried: lost connections, timeouts, 408, 409, 5xx and broken bodies up
    to ``retries`` times, 429 as long as ``patience`` lasts, at a rate that all callers share. Every
    other failure is an answer with an error at once.

    Dollars come from the tokens that the server counted; if it counted none, they come from the
    characters of request and answer, four to a token, and ``tokens_in`` and ``tokens_out`` stay
    none. Attempts that may have been charged without an answer (timeouts, lost connections, broken
    or oversized bodies) count at their upper bound in ``unconfirmed_cost``, not in ``dollars``.

    An expert may be closed and reused, and used by one event loop after another.

    Args:
        name: Its name in tables.
        model: The model, its prompt and its price.
        calls: Concurrency, timeouts and retries.
        secret: The key, or none.
        clock: Clock, sleep and random.
        headers: Additional request headers, by name: texts, or ``{"env": variable}``.

    Example:
        >>> from mildroute.experts.prompts import PromptTemplate
        >>> url, prompt = "http://127.0.0.1:8080/v1", PromptTemplate("{topic}: {input}")
        >>> settings = ModelSettings(url, "smollm2", prompt, {"max_tokens": 64})
        >>> small = OpenAIExpert("small", settings, CallSettings(concurrency=4))
        >>> asyncio.run(small.answer([Query("q1", "2 + 2?")]))[0].error
        'the template needs {topic}, which the query lacks; it has input.'
    """

    def __init__(
        self,
        name: str,
        model: ModelSettings,
        calls: CallSettings = _DEFAULT_CALLS,
        secret: Secret | None = None,
        clock: Clock = _DEFAULT_CLOCK,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.model, self.calls, self._clock = model, calls, clock
        self._headers = RequestHeaders(headers, secret)
        self._secrets: SecretSet = self._headers
        self.version = model.fingerprint
        self.price = model.price
        self.concurrency = calls.concurrency
        self._rate_limiter = AdaptiveRateLimiter(clock)
        self._transport: Transport | None = None

    def __repr__(self) -> str:
        """Name, model and address."""
        return (
            f"Endpoint({self.name!r}, model={self.model.model!r}, base_url={self.model.base_url!r})"
        )

    def max_cost(self, query: Query) -> float:
        """Return an upper bound on the cost of this query, with all attempts that may be charged.

        Infinite if nothing bounds the answer.

        Example:
            >>> free = OpenAIExpert("small", ModelSettings("http://127.0.0.1:8080/v1", "smollm2"))
            >>> free.max_cost(Query("q1", "Hi"))
            0.0
        """
        return self.estimate_cost(query).at_most

    def max_attempt_cost(self, query: Query) -> float:
        """Return an upper bound on the cost of one attempt at this query."""
        try:
            return self.model.max_cost(self.model.body(query))
        except ArgumentError:
            return 0.0

    def estimate_cost(self, query: Query) -> CostEstimate:
        """Estimate what this query costs.

        Tokens count four characters each; dollars are those of one call with an answer of maximum
        length.

        Example:
            >>> free = OpenAIExpert("small", ModelSettings("http://127.0.0.1:8080/v1", "smollm2"))
            >>> free.estimate_cost(Query("q1", "Hi")).dollars
            0.0
        """
        try:
            body = self.model.body(query)
        except ArgumentError:
            return CostEstimate(0.0, 0.0, 0.0)
        tokens = len(body) / CHARACTERS_PER_TOKEN
        return CostEstimate(
            tokens,
            self.model.dollars_for(tokens),
            self.model.max_cost(body) * (1 + self.calls.backoff.retries),
        )

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order; failures are answers with an error."""
        if len(batch) == 1:
            return [await self._ask(batch[0])]
        return list(await asyncio.gather(*map(self._ask, batch)))

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        if self._transport is not None and self._transport.loop is asyncio.get_running_loop():
            await self._transport.close()
        elif self._transport is not None:
            self._transport.forget()

    async def _ask(self, query: Query) -> Answer:
        try:
            body = self.model.body(query)
        except ArgumentError as error:
            return Answer(None, error=str(error), attempts=0)
        course = _Course()
        wire = self._open()
        while True:
            outcome = await self._attempt(wire, body, course)
            wait = self._wait_before_next(outcome, course)
            if wait is None:
                return self._answer(outcome, body, course)
            await self._clock.sleep(wait)
            if outcome.doubtful and not await self._may_retry(query, body):
                unpaid = f"{outcome.error}, and the cap leaves no money for another attempt"
                return self._answer(replace(outcome, error=unpaid), body, course)

    async def _may_retry(self, query: Query, body: bytes) -> bool:
        """Return whether the budget allows another attempt after one that may have been charged."""
        reserve, worst = RESERVE_RETRY.get(), self.model.max_cost(body)
        return reserve is None or not worst or await reserve(query, worst)

    async def _attempt(self, wire: Transport, body: bytes, course: _Course) -> AttemptOutcome:
        async with wire.slots:
            started = await self._rate_limiter.acquire()
            result = await wire.post(body)
        course.seconds = self._clock.monotonic() - started
        course.attempts += 1
        outcome = classify_attempt(
            result, self._secrets.scrub, now=self._clock.time(), parse=self.model.parse
        )
        if outcome.completion is not None:
            self._rate_limiter.record_success()
        elif outcome.again == "after refusal":
            self._rate_limiter.record_rejection(
                started, min(outcome.wait or 0.0, self.calls.backoff.longest)
            )
        if outcome.doubtful:
            course.unconfirmed_cost += self.model.max_cost(body)
        return outcome

    def _wait_before_next(self, outcome: AttemptOutcome, course: _Course) -> float | None:
        """Seconds, or none if there is no next attempt."""
        backoff, jitter = self.calls.backoff, self._clock.random()
        if outcome.again == "after refusal" and self._patient(course):
            course.refusals += 1
            # The limiter holds all callers back for as long as the server demands.
            return 0.0 if outcome.wait else backoff.wait(course.refusals, jitter=jitter)
        if outcome.again == "after failure" and course.failures < backoff.retries:
            course.failures += 1
            return max(
                min(outcome.wait or 0.0, backoff.longest),
                backoff.wait(course.failures, jitter=jitter),
            )
        return None

    def _patient(self, course: _Course) -> bool:
        now = self._clock.monotonic()
        if not course.refusals:
            course.first_refusal = now
        return now - course.first_refusal < self.calls.backoff.patience

    def _answer(self, outcome: AttemptOutcome, body: bytes, course: _Course) -> Answer:
        completion = outcome.completion or Completion(None, outcome.error)
        error = completion.problem
        if error and course.attempts > 1:
            error = f"{error} (the last of {course.attempts} attempts)"
        text = completion.text
        return Answer(
            None if text is None else self._secrets.scrub_answer(text),
            completion.tokens_in,
            completion.tokens_out,
            dollars=0.0 if outcome.completion is None else self._dollars(completion, body),
            latency=course.seconds,
            error=error,
            attempts=course.attempts,
            unconfirmed_cost=course.unconfirmed_cost,
            logprob=completion.logprob,
        )

    def _dollars(self, completion: Completion, body: bytes) -> float:
        if self.price is None:
            return 0.0
        tokens_in, tokens_out = completion.tokens_in, completion.tokens_out
        if tokens_in is None:
            tokens_in = _estimate(len(body))
        if tokens_out is None:
            tokens_out = _estimate(len(completion.text or ""))
        return float(self.price.cost(tokens_in, tokens_out))

    def _open(self) -> Transport:
        if (
            self._transport is None
            or self._transport.closed
            or self._transport.loop is not asyncio.get_running_loop()
        ):
            if self._transport is not None:
                self._transport.forget()
            self._transport = self._connect()
        return self._transport

    def _connect(self) -> Transport:
        return HTTPTransport(self.model.url, self.calls, self._headers)


def _estimate(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN)


# The same by the SDK of LiteLLM, which knows how to speak to its providers.


class _SDKTransport:
    """Calls of one event loop, with the methods of an ``HTTPTransport``."""

    def __init__(self, model: LiteLLMModel, path: str, calls: CallSettings) -> None:
        self.loop = asyncio.get_running_loop()
        self.slots = asyncio.Semaphore(calls.concurrency)
        self.closed = False
        self._model, self._path, self._calls = model, path, calls
        self._guard = LogGuard(model.secrets)
        self._guard.on()

    async def post(self, body: bytes) -> HTTPResult | TransportFailure:
        """Send a request and wait for its whole answer."""
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
        most = self._calls.largest
        return HTTPResult(200, content[:most], len(content) > most)

    async def close(self) -> None:
        """Make no further call; the SDK keeps its connections for others."""
        self.forget()

    def forget(self) -> None:
        """Make no further call."""
        self.closed = True
        self._guard.off()


class LiteLLMExpert(OpenAIExpert):
    """A language model of any provider that LiteLLM knows.

    Calls, retries and costs work as for an :class:`OpenAIExpert`; LiteLLM translates requests and
    answers.

    Args:
        name: Its name in tables.
        model: The model as LiteLLM names it, its prompt and its price.
        sdk_model: Calls it.
        calls: Concurrency, timeouts and retries.
        clock: Clock, sleep and random.
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

    def _connect(self) -> _SDKTransport:
        return _SDKTransport(self._sdk_model, self.model.prompt.path, self.calls)
