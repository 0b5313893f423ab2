"""Any OpenAI-compatible HTTP endpoint as an expert."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.exceptions import ArgumentError
from mildroute.experts._attempt import AttemptOutcome, classify_attempt
from mildroute.experts._http import HTTPTransport, Transport
from mildroute.experts.base import RESERVE_RETRY, Answer, CostEstimate, Expert, Query
from mildroute.experts.clock import Clock
from mildroute.experts.completion import Completion
from mildroute.experts.rate_limiter import AdaptiveRateLimiter
from mildroute.experts.secrets import RequestHeaders, Secret, SecretSet
from mildroute.experts.settings import CallSettings, ModelSettings

__all__ = ["OpenAIExpert"]

_DEFAULT_CALLS = CallSettings()
_DEFAULT_CLOCK = Clock()


@dataclass
class _CallHistory:
    """The attempts made so far at one query.

    Args:
        attempts: Number of attempts.
        failures: Number of attempts retried after a failure.
        refusals: Number of attempts retried after a refusal.
        first_refusal: Time of the first refusal.
        unconfirmed_cost: Upper bound on the cost of attempts that may have been charged.
        latency: Duration of the last attempt in seconds.
    """

    attempts: int = 0
    failures: int = 0
    refusals: int = 0
    first_refusal: float = 0.0
    unconfirmed_cost: float = 0.0
    latency: float = 0.0


class OpenAIExpert(Expert):
    """A language model behind an OpenAI-compatible address.

    Transient failures are retried. Lost connections, timeouts, 408, 409, 5xx and broken bodies are
    retried up to ``retries`` times, and 429 for ``patience`` seconds, at a rate that all callers
    share. Every other failure immediately becomes an answer with an error.

    Dollars are computed from the tokens that the server counted. If the server counted none, they
    are estimated from the characters of the request and the answer, at four per token, and
    ``tokens_in`` and ``tokens_out`` are ``None``. Attempts that may have been charged without an
    answer (timeouts, lost connections, broken or oversized bodies) count at their upper bound in
    ``unconfirmed_cost``, not in ``dollars``.

    An expert may be closed and reused, and used by one event loop after another.

    Args:
        name: The expert's name in tables.
        model: The model, its prompt and its price.
        calls: Concurrency, timeouts and retries.
        secret: The key, or ``None``.
        clock: Source of time and randomness.
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
        self.model = model
        self.calls = calls
        self._clock = clock
        self._headers = RequestHeaders(headers, secret)
        self._secrets: SecretSet = self._headers
        self.version = model.fingerprint
        self.price = model.price
        self.concurrency = calls.concurrency
        self._rate_limiter = AdaptiveRateLimiter(clock)
        self._transport: Transport | None = None

    def __repr__(self) -> str:
        """Return a representation with the name, model and address."""
        return (
            f"{type(self).__name__}({self.name!r}, model={self.model.model!r},"
            f" base_url={self.model.base_url!r})"
        )

    def max_cost(self, query: Query) -> float:
        """Return an upper bound on the cost of a query, including all attempts that may be charged.

        The bound is infinite if nothing limits the length of the answer.

        Example:
            >>> free = OpenAIExpert("small", ModelSettings("http://127.0.0.1:8080/v1", "smollm2"))
            >>> free.max_cost(Query("q1", "Hi"))
            0.0
        """
        return self.estimate_cost(query).at_most

    def max_attempt_cost(self, query: Query) -> float:
        """Return an upper bound on the cost of one attempt at a query."""
        try:
            return self.model.max_cost(self.model.body(query))
        except ArgumentError:
            return 0.0

    def estimate_cost(self, query: Query) -> CostEstimate:
        """Estimate the cost of a query.

        Tokens are estimated at four characters each, and dollars for one call with an answer of
        maximum length.

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
        """Return one answer for each query, in their order; failures are answers with an error."""
        if len(batch) == 1:
            return [await self._answer_query(batch[0])]
        return list(await asyncio.gather(*map(self._answer_query, batch)))

    async def close(self) -> None:
        """Close all connections; calls in flight end with an error."""
        if self._transport is not None and self._transport.loop is asyncio.get_running_loop():
            await self._transport.close()
        elif self._transport is not None:
            self._transport.abandon()

    async def _answer_query(self, query: Query) -> Answer:
        try:
            body = self.model.body(query)
        except ArgumentError as error:
            return Answer(None, error=str(error), attempts=0)
        history = _CallHistory()
        transport = self._open_transport()
        while True:
            outcome = await self._attempt(transport, body, history)
            wait = self._wait_before_retry(outcome, history)
            if wait is None:
                return self._make_answer(outcome, body, history)
            await self._clock.sleep(wait)
            if outcome.doubtful and not await self._reserve_retry(query, body):
                reason = f"{outcome.error}, and the cap leaves no money for another attempt"
                return self._make_answer(replace(outcome, error=reason), body, history)

    async def _reserve_retry(self, query: Query, body: bytes) -> bool:
        """Return whether the budget allows another attempt after one that may have been charged."""
        reserve = RESERVE_RETRY.get()
        max_cost = self.model.max_cost(body)
        return reserve is None or not max_cost or await reserve(query, max_cost)

    async def _attempt(
        self, transport: Transport, body: bytes, history: _CallHistory
    ) -> AttemptOutcome:
        async with transport.slots:
            started = await self._rate_limiter.acquire()
            result = await transport.post(body)
        history.latency = self._clock.monotonic() - started
        history.attempts += 1
        outcome = classify_attempt(
            result, self._secrets.scrub, now=self._clock.time(), parse=self.model.parse
        )
        if outcome.completion is not None:
            self._rate_limiter.record_success()
        elif outcome.retry == "after refusal":
            self._rate_limiter.record_rejection(
                started, min(outcome.wait or 0.0, self.calls.backoff.longest)
            )
        if outcome.doubtful:
            history.unconfirmed_cost += self.model.max_cost(body)
        return outcome

    def _wait_before_retry(self, outcome: AttemptOutcome, history: _CallHistory) -> float | None:
        """Return the seconds to wait, or ``None`` if there is no further attempt."""
        backoff = self.calls.backoff
        jitter = self._clock.random()
        if outcome.retry == "after refusal" and self._is_patient(history):
            history.refusals += 1
            # The rate limiter makes all callers wait for as long as the server requests.
            return 0.0 if outcome.wait else backoff.wait(history.refusals, jitter=jitter)
        if outcome.retry == "after failure" and history.failures < backoff.retries:
            history.failures += 1
            return max(
                min(outcome.wait or 0.0, backoff.longest),
                backoff.wait(history.failures, jitter=jitter),
            )
        return None

    def _is_patient(self, history: _CallHistory) -> bool:
        now = self._clock.monotonic()
        if not history.refusals:
            history.first_refusal = now
        return now - history.first_refusal < self.calls.backoff.patience

    def _make_answer(self, outcome: AttemptOutcome, body: bytes, history: _CallHistory) -> Answer:
        completion = outcome.completion or Completion(None, outcome.error)
        error = completion.problem
        if error and history.attempts > 1:
            error = f"{error} (the last of {history.attempts} attempts)"
        text = completion.text
        return Answer(
            None if text is None else self._secrets.scrub_answer(text),
            completion.tokens_in,
            completion.tokens_out,
            dollars=0.0 if outcome.completion is None else self._dollars(completion, body),
            latency=history.latency,
            error=error,
            attempts=history.attempts,
            unconfirmed_cost=history.unconfirmed_cost,
            logprob=completion.logprob,
        )

    def _dollars(self, completion: Completion, body: bytes) -> float:
        if self.price is None:
            return 0.0
        tokens_in = completion.tokens_in
        tokens_out = completion.tokens_out
        if tokens_in is None:
            tokens_in = math.ceil(len(body) / CHARACTERS_PER_TOKEN)
        if tokens_out is None:
            tokens_out = math.ceil(len(completion.text or "") / CHARACTERS_PER_TOKEN)
        return float(self.price.cost(tokens_in, tokens_out))

    def _open_transport(self) -> Transport:
        """Return the open transport of the running event loop, or open a new one."""
        if (
            self._transport is None
            or self._transport.closed
            or self._transport.loop is not asyncio.get_running_loop()
        ):
            if self._transport is not None:
                self._transport.abandon()
            self._transport = self._make_transport()
        return self._transport

    def _make_transport(self) -> Transport:
        return HTTPTransport(self.model.url, self.calls, self._headers)
