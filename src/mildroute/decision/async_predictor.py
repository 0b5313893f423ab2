"""A predictor for many concurrent requests: vectors in batches, targets off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

from mildroute.decision.batching import EncoderQueue
from mildroute.decision.prediction import Prediction
from mildroute.decision.predictor import Predictor
from mildroute.decision.settings import EncoderConfig
from mildroute.decision.targets import describe_target
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.routers.frontier.operating_point import OperatingPoint
from mildroute.routers.frontier.target import Target

__all__ = ["ROWS_PER_TURN", "AsyncPredictor", "TooManyTargetsError"]

# Number of rows of one request that are decided, or recorded, before other requests get a turn.
# They take about a millisecond.
ROWS_PER_TURN = 8
# Maximum number of rows, from several requests, that are decided together.
_MAX_ROWS_AT_ONCE = 64
# Maximum number of targets that wait for their points: each takes 10 to 40 ms of one thread, and a
# client can make up as many as it likes.
_MAX_WAITING_TARGETS = 8


class TooManyTargetsError(MildrouteError):
    """Too many new targets arrived at the same time."""


class AsyncPredictor(Predictor):
    """A predictor for many concurrent requests.

    Args:
        router: A router over texts.
        sha256: Digest of its artifact.
        config: Settings of the queue.
        queue: The queue of a predictor with the same encoder; defaults to a new one.

    Attributes:
        queue: Queue that encodes texts in batches.
    """

    def __init__(
        self,
        router: Any,
        sha256: str,
        config: EncoderConfig | None = None,
        queue: EncoderQueue | None = None,
    ) -> None:
        self.queue = queue or EncoderQueue(self.encode, config or EncoderConfig())
        self._waiting: dict[
            OperatingPoint | None, list[tuple[Any, str, asyncio.Future[Prediction]]]
        ] = {}
        self._pending: dict[Target, asyncio.Future[OperatingPoint | str]] = {}
        self._resolver = ThreadPoolExecutor(1, thread_name_prefix="mildroute-targets")
        super().__init__(router, sha256, config)

    def _sibling(self, router: Any) -> Self:
        return type(self)(router, self.sha256, self._config, self.queue)

    async def apredict(
        self, text: str, point: OperatingPoint | None, coin_key: str
    ) -> Prediction | None:
        """Return the router's view of an input, or ``None`` if it is not ready in time.

        Args:
            text: The input.
            point: Operating point, from :meth:`apoint`.
            coin_key: Seed of the coin between two vertices: the request's id, or the text itself.
        """
        row = await self.queue.encode(text)
        if row is None:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Prediction] = loop.create_future()
        waiting = self._waiting.setdefault(point, [])
        if not waiting:
            # All rows that are ready in this iteration of the event loop are decided together.
            loop.call_soon(self._predict_waiting, point)
        waiting.append((row, coin_key, future))
        return await future

    def _predict_waiting(self, point: OperatingPoint | None) -> None:
        waiting = self._waiting.pop(point)
        for start in range(0, len(waiting), _MAX_ROWS_AT_ONCE):
            members = waiting[start : start + _MAX_ROWS_AT_ONCE]
            rows = [row for row, _, _ in members]
            try:
                predictions = self.predict_rows(rows, point, [key for _, key, _ in members])
            except Exception as error:  # noqa: BLE001 - each caller raises it
                _fail([future for _, _, future in members], error)
                continue
            for (_, _, future), prediction in zip(members, predictions, strict=True):
                if not future.done():
                    future.set_result(prediction)

    async def apredict_batch(
        self, texts: Sequence[str], point: OperatingPoint | None, coin_keys: Sequence[str]
    ) -> list[Prediction | None]:
        """Return the router's view of many inputs, without a time limit.

        Returns:
            A prediction for each input, or ``None`` if the input cannot be encoded.
        """
        rows = await self.queue.encode_batch(texts)
        predictions: list[Prediction | None] = []
        for row, coin_key in zip(rows, coin_keys, strict=True):
            predictions.append(None if row is None else self.predict_row(row, point, coin_key))
            if len(predictions) % ROWS_PER_TURN == 0:
                # Without pauses, 1,000 rows would block all other clients for a quarter second.
                await asyncio.sleep(0)
        return predictions

    async def apoint(self, target: Target | None) -> OperatingPoint | None:
        """Return the operating point of a target, as :meth:`point` does, off the event loop.

        Raises:
            ArgumentError: The router has no prices, or the target cannot be reached.
            TooManyTargetsError: Too many new targets are already waiting.
        """
        if target is None:
            return self.own
        if not self.has_prices or target.kind == "price weight":
            return self.point(target)
        result = self._cached_point(target)
        if result is None:
            result = await self._resolve_in_thread(target)
        if isinstance(result, str):
            raise ArgumentError(result)
        return result

    async def _resolve_in_thread(self, target: Target) -> OperatingPoint | str:
        future = self._pending.get(target)
        if future is None:
            if len(self._pending) >= _MAX_WAITING_TARGETS:
                raise TooManyTargetsError(
                    f"at most {_MAX_WAITING_TARGETS} new targets can be computed at a time, got"
                    f" {describe_target(target)} in addition; retry later, or use a preset."
                )
            loop = asyncio.get_running_loop()
            future = loop.run_in_executor(self._resolver, self._resolve, target)
            self._pending[target] = future
            future.add_done_callback(lambda done: self._deliver(target, done))
        # A canceled request must not cancel the computation, because others may wait for it.
        return await asyncio.shield(future)

    def _deliver(self, target: Target, done: asyncio.Future[OperatingPoint | str]) -> None:
        del self._pending[target]
        if not done.cancelled() and done.exception() is None:
            self._cache_point(target, done.result())

    def close(self) -> None:
        """Shut down the threads."""
        self.queue.close()
        self._resolver.shutdown(wait=False, cancel_futures=True)
        self.without_looks._resolver.shutdown(wait=False, cancel_futures=True)


def _fail(futures: Sequence[asyncio.Future[Prediction]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(error)
