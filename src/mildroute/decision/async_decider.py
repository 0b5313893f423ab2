"""A decider for servers, which waits for batched vectors instead of encoding each input alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from mildroute.decision.async_predictor import ROWS_PER_TURN, AsyncPredictor
from mildroute.decision.decider import Decider
from mildroute.decision.decision import Decision
from mildroute.decision.prediction import Prediction
from mildroute.decision.request import DecisionRequest, ExpertStatus

__all__ = ["AsyncDecider", "PredictorSource", "Statuses"]

# A function that returns the state of each expert that may be called. It is called once the
# prediction is ready.
Statuses = Callable[[], Mapping[str, ExpertStatus]]


class PredictorSource(Protocol):
    """An object that holds the router in use, which may change between two requests."""

    @property
    def predictor(self) -> AsyncPredictor | None:
        """The router in use; ``None`` until one is loaded."""


class AsyncDecider:
    """A :class:`Decider` for many concurrent requests.

    Args:
        decider: The decider that turns predictions into decisions.
        source: The object that holds the router in use.
    """

    def __init__(self, decider: Decider, source: PredictorSource) -> None:
        self.decider = decider
        self._source = source

    async def decide(
        self, request: DecisionRequest, statuses: Statuses
    ) -> tuple[Decision, AsyncPredictor | None]:
        """Decide for one request, within the time limit of the encoder.

        Returns:
            The decision, and the router that made it, which also runs later stages of a cascade.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
            TooManyTargetsError: Too many new targets are already waiting.
        """
        current = self._source.predictor
        if current is None:
            return self.decider.pass_through(request, statuses()), None
        predictor = self.decider.predictor_for(current, request)
        point = await predictor.apoint(request.target)
        prediction = await predictor.apredict(request.text, point, request.coin_key)
        decision = self.decider.choose(predictor, prediction, point, request, statuses())
        return decision, predictor

    async def predict(self, request: DecisionRequest) -> Prediction | None:
        """Return the router's view of an input; ``None`` without a router or after a timeout.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
            TooManyTargetsError: Too many new targets are already waiting.
        """
        current = self._source.predictor
        if current is None:
            return None
        predictor = self.decider.predictor_for(current, request)
        point = await predictor.apoint(request.target)
        return await predictor.apredict(request.text, point, request.coin_key)

    async def decide_batch(
        self, requests: Sequence[DecisionRequest], statuses: Statuses
    ) -> list[tuple[Decision, AsyncPredictor | None]]:
        """Decide for many requests with the same target, without a time limit."""
        current = self._source.predictor
        if current is None:
            states = statuses()
            return [(self.decider.pass_through(request, states), None) for request in requests]
        groups: dict[AsyncPredictor, list[int]] = {}
        for index, request in enumerate(requests):
            groups.setdefault(self.decider.predictor_for(current, request), []).append(index)
        decisions: dict[int, tuple[Decision, AsyncPredictor | None]] = {}
        for predictor, indices in groups.items():
            members = [requests[index] for index in indices]
            point = await predictor.apoint(members[0].target)
            predictions = await predictor.apredict_batch(
                [request.text for request in members],
                point,
                [request.coin_key for request in members],
            )
            states = statuses()
            for index, prediction in zip(indices, predictions, strict=True):
                request = requests[index]
                decision = self.decider.choose(predictor, prediction, point, request, states)
                decisions[index] = (decision, predictor)
                if len(decisions) % ROWS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return [decisions[index] for index in range(len(requests))]
