"""Cascades, which call experts, read their answers and decide whether to call others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from mildroute.decision.predictor import Predictor
from mildroute.experts.completion import answer_logprob, answer_text
from mildroute.gateway.context import RequestContext
from mildroute.gateway.upstream.attempts import Attempt
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.errors import UpstreamError
from mildroute.gateway.upstream.failover import Failover

__all__ = ["CascadeCall"]


class CascadeCall:
    """The calls of one request, whose answers decide which experts to call next.

    Args:
        failover: Calls experts.
        predictor: The router, which continues after each stage.
        context: The request, whose decision names the first stage.
        request: The request for the experts.
        deadline: Time by which the response must arrive, on the clock of the event loop.
        max_response_bytes: Maximum bytes of an answer.
    """

    def __init__(
        self,
        failover: Failover,
        predictor: Predictor,
        context: RequestContext,
        request: UpstreamRequest,
        deadline: float,
        max_response_bytes: int,
    ) -> None:
        self._failover = failover
        self._predictor = predictor
        self._context = context
        self._request = request
        self._deadline = deadline
        self._max_response_bytes = max_response_bytes
        # Responses that the cascade has read.
        self._answered: dict[str, Attempt] = {}
        # Experts with empty answers.
        self._silent: set[str] = set()
        # Mean log-probabilities of the answers, or None if an answer has none.
        self._logprobs: dict[str, float | None] = {}

    async def run(self) -> Attempt | None:
        """Return the answer that the cascade chooses; ``None`` if no expert answers.

        A failed call or an empty answer ends the cascade: the first answer that has arrived is
        returned, and without one the next expert of the order is called.
        """
        prediction = self._context.decision.prediction
        stage: int | None = self._predictor.stage_of(self._context.decision.look)
        choice: str | None = None
        try:
            while stage is not None and prediction is not None:
                if not await self._ask(self._predictor.asked(stage)):
                    break
                step = await asyncio.to_thread(self._step, stage, prediction.row)
                stage = step if isinstance(step, int) else None
                choice = step if isinstance(step, str) else None
            if choice is not None:
                return await self._escalate(choice) or await self._first_answer()
            return await self._first_answer()
        finally:
            for attempt in self._answered.values():
                self._discard(attempt)

    async def _escalate(self, name: str) -> Attempt | None:
        """Return the chosen answer; ``None`` if the call fails or the answer is empty.

        A stream is returned from its first event on, because nothing remains to be decided.
        """
        if name in self._answered:
            return self._answered.pop(name)
        if self._context.parsed.is_stream:
            attempt = await self._attempt((name,), is_look=True)
            if attempt is None or not attempt.response.is_complete:
                return attempt
            self._answered[name] = attempt
            is_answered = attempt.response.status < 300
            if is_answered:
                attempt.charge(self._context.parsed)
        else:
            is_answered = await self._ask((name,))
        if not is_answered:
            return None
        if not (await asyncio.to_thread(_text_of, self._answered[name])).strip():
            self._silent.add(name)
            return None
        return self._answered.pop(name)

    async def _first_answer(self) -> Attempt | None:
        """Return the best response so far; without one, return the answer of another expert."""
        answered = self._answered
        context = self._context
        # One expert's refusal does not count while another expert has an answer.
        names = [name for name in answered if name not in self._silent]
        if names:
            return answered.pop(min(names, key=lambda name: answered[name].response.status))
        failed = {failure.expert for failure in context.attempts.failures}
        # Experts that have failed come last: they may have recovered when all others fail.
        order = sorted(context.decision.order, key=failed.__contains__)
        attempt = await self._attempt([name for name in order if name not in answered])
        if attempt is None and answered:
            return answered.popitem()[1]
        return attempt

    async def _ask(self, names: Sequence[str]) -> bool:
        """Call the experts that have not answered yet in parallel; return whether all answer.

        Each answer is charged, even if it is not used.
        """
        names = [name for name in names if name not in self._answered]
        attempts = self._context.attempts
        started = perf_counter()
        waited = attempts.waited
        try:
            results = await asyncio.gather(*(self._answer(name) for name in names))
        finally:
            # The time of parallel calls counts once.
            attempts.waited = waited + perf_counter() - started
        self._answered |= {
            name: attempt
            for name, attempt in zip(names, results, strict=True)
            if attempt is not None
        }
        return all(attempt is not None and attempt.response.status < 300 for attempt in results)

    async def _answer(self, name: str) -> Attempt | None:
        """Call an expert and charge its complete answer; return ``None`` if the call fails."""
        has_logprobs = name in self._predictor.logprob_experts
        attempt = await self._attempt((name,), is_look=True, logprobs=has_logprobs)
        if attempt is None:
            return None
        response = attempt.response
        attempt.call.status = response.status
        try:
            if response.status < 300 and not response.is_complete:
                await response.read_all(self._deadline, self._max_response_bytes)
            if response.status < 300 and has_logprobs:
                self._logprobs[name] = await asyncio.to_thread(answer_logprob, response.body)
        except UpstreamError as error:
            attempt.record_failure()
            self._context.attempts.fail(name, error.reason)
            self._discard(attempt)
            return None
        except BaseException:
            self._discard(attempt)
            raise
        if response.status < 400:
            attempt.charge(self._context.parsed)
        return attempt

    async def _attempt(
        self, order: Sequence[str], *, is_look: bool = False, logprobs: bool = False
    ) -> Attempt | None:
        context = self._context
        return await self._failover.call(
            self._request._replace(logprobs=logprobs),
            order,
            context.decision.excluded,
            context.attempts,
            context.span,
            self._deadline,
            is_look=is_look,
        )

    def _step(self, stage: int, row: Any) -> str | int | None:
        """Return the next stage or the chosen expert; ``None`` if an answer is empty.

        Routers are not trained on empty answers and would treat them as short ones.
        """
        texts = {name: _text_of(attempt) for name, attempt in self._answered.items()}
        self._silent = {name for name, text in texts.items() if not text.strip()}
        if self._silent:
            return None
        return self._predictor.step(stage, row, texts, self._logprobs)

    def _discard(self, attempt: Attempt) -> None:
        """Close a response, and charge the part that has arrived unless it was already charged."""
        if attempt.response.status < 400 and not attempt.call.is_charged:
            attempt.charge(self._context.parsed)
        attempt.close()


def _text_of(attempt: Attempt) -> str:
    return answer_text(attempt.response.body)
