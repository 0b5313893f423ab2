"""From a request to a decision."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import perf_counter

from mildroute._fit import Target
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.routers.operating_point import OperatingPoint
from mildroute.serving.config import TARGETS, words_of
from mildroute.serving.context import RequestContext
from mildroute.serving.http.errors import APIError
from mildroute.serving.routing.affinity import SessionAffinity
from mildroute.serving.routing.policy import Decision, decide, decide_named
from mildroute.serving.routing.predictor import Prediction, TooManyTargetsError
from mildroute.serving.services import GatewayServices, PredictorHolder, PredictorProtocol
from mildroute.serving.upstream.pool import AUTO_MODEL, ExpertPool

__all__ = ["Decider"]


_KEYS = {kind: name for name, kind in TARGETS.items()}


class Decider:
    """Whom to ask.

    Args:
        services: Of the gateway.
        pool: Who there is.
        affinity: Who is with whom.
    """

    def __init__(self, services: GatewayServices, pool: ExpertPool, affinity: SessionAffinity) -> None:
        self._services, self._pool, self._affinity = services, pool, affinity
        self._routes = frozenset((AUTO_MODEL, *services.settings.policy.routes))

    def is_route(self, model: str) -> bool:
        """Whether what stands under ``model`` means "choose"; a APIError if nobody has that name."""
        if model in self._routes:
            return True
        if model not in self._pool.candidates:
            known = ", ".join((*sorted(self._routes), *self._pool.candidates))
            message = f"model must be a route or an expert of this gateway, which has: {known:.2000}."
            raise APIError(404, message, code="model_not_found", param="model")
        return False

    async def choose(self, context: RequestContext, target: Target | None) -> None:
        """Decide in time."""
        predictor, parsed = self._predictor(), context.parsed
        point = await _point(predictor, target)
        context.target = words_of(target)
        prediction = await predictor.predict(parsed.text, point, context.coin_key)
        if self._services.shadow is not None:
            context.shadow = asyncio.get_running_loop().create_task(self._silently(self._services.shadow, context, target))
        statuses, owner = self._pool.statuses(), self._affinity.held(parsed.follows)
        if owner is None:
            default = self._default(predictor, prediction, point)
            held = self._affinity.held(parsed.conversation)
            decision = decide(prediction, parsed, statuses, self._services.settings.policy, default, held, self._services.draw)
        else:
            # Nobody else knows the response that this one goes on from: an error is better than an answer that has lost its past.
            decision = decide_named(owner, parsed, statuses, "kept")
        self._settle(context, decision, prediction, predictor)

    async def choose_all(self, contexts: Sequence[RequestContext], target: Target | None) -> None:
        """Decide for many at once, however long it takes, and for experts that the gateway cannot call, too."""
        predictor, statuses = self._predictor(), self._pool.standings_of_all()
        point = await _point(predictor, target)
        predictions = await predictor.predict_batch(
            [context.parsed.text for context in contexts], point, [context.coin_key for context in contexts]
        )
        for context, prediction in zip(contexts, predictions, strict=True):
            context.target = words_of(target)
            held = self._affinity.held(context.parsed.conversation)
            default = self._default(predictor, prediction, point)
            decision = decide(prediction, context.parsed, statuses, self._services.settings.policy, default, held, self._services.draw)
            self._settle(context, decision, prediction, predictor)

    def pin_expert(self, context: RequestContext) -> None:
        """Decide for the expert that the client named; a APIError if it is none that can be called."""
        name = context.parsed.model
        if name not in self._pool.callable:
            message = f"{name} cannot be asked through the gateway, which only speaks to experts of the kind 'openai'; use /v1/route."
            raise APIError(400, message, code="expert_not_callable", param="model")
        self._settle(context, decide_named(name, context.parsed, self._pool.statuses()), None, None)

    def _predictor(self) -> PredictorProtocol:
        try:
            return self._services.manager.predictor
        except ArtifactError:
            raise APIError(503, "no router has been loaded yet; come again.", retry_after=1.0) from None

    def _default(self, predictor: PredictorProtocol, prediction: Prediction | None, point: OperatingPoint | None) -> str:
        """Who answers what the router cannot judge, at the price that the request asks for: also if its vector came too late."""
        named = self._services.settings.policy.default or (prediction.default if prediction is not None else "")
        return named or predictor.default_at(None if point is None else point.price_weight)

    def _settle(
        self, context: RequestContext, decision: Decision, prediction: Prediction | None, predictor: PredictorProtocol | None
    ) -> None:
        context.prediction, context.decision, context.decided = prediction, decision, perf_counter()
        if prediction is not None:
            context.first_choice = self._first_choice(prediction)
        if predictor is not None:
            context.experts, context.router = predictor.experts, predictor.digest
        self._services.metrics.decided(decision, prediction, context.decided - context.arrived)
        context.trace.decided(decision)

    def _first_choice(self, prediction: Prediction) -> str:
        """What a router alone would choose."""
        default = self._services.settings.policy.default
        return default if default is not None and prediction.is_far else prediction.expert

    async def _silently(self, shadow: PredictorHolder, context: RequestContext, target: Target | None) -> str:
        """What the second router would choose; empty if it could not say."""
        try:
            predictor = shadow.predictor
            point = await predictor.point(target)
        except (ArtifactError, ArgumentError, TooManyTargetsError):
            return ""
        prediction = await predictor.predict(context.parsed.text, point, context.coin_key)
        return "" if prediction is None else self._first_choice(prediction)


async def _point(predictor: PredictorProtocol, target: Target | None) -> OperatingPoint | None:
    """Where to decide; a APIError if the router cannot decide there."""
    try:
        return await predictor.point(target)
    except ArgumentError as error:
        raise APIError(400, str(error), param=_KEYS.get(target.kind) if target is not None else None) from None
    except TooManyTargetsError:
        message = "too many qualities and budgets that are new to the gateway are being looked up; come again, or ask for a preset."
        raise APIError(429, message, code="too_many_targets", retry_after=1.0) from None
