"""The decider, which turns an input into a decision for every entry point."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from mildroute.decision.affinity import SessionAffinity
from mildroute.decision.decision import Decision
from mildroute.decision.exploration import ExplorationBudget
from mildroute.decision.feedback import DecisionIds
from mildroute.decision.policy import decide, decide_pinned, resolve_look, status_of_look
from mildroute.decision.prediction import Prediction
from mildroute.decision.predictor import Predictor
from mildroute.decision.request import DecisionRequest, ExpertStatus
from mildroute.decision.settings import RoutingConfig
from mildroute.routers.frontier.operating_point import OperatingPoint

__all__ = ["Decider"]

P = TypeVar("P", bound=Predictor)


class Decider:
    """A decider, which chooses the expert that handles a request.

    A decider does no I/O and needs no event loop. Servers with many concurrent requests wrap it in
    an :class:`~mildroute.decision.async_decider.AsyncDecider`.

    Args:
        predictor: The router; ``None`` passes every request to the default expert.
        config: Default expert, session affinity and exploration.
        affinity: Memory of each conversation's expert; defaults to an empty one.
        exploration: Budget for exploration; defaults to the one in ``config``.
        random: Function that returns a uniform number in [0, 1), which decides what is explored.
        new_id: Function that creates a decision id for a request without one.

    Attributes:
        predictor: The router, which may be replaced at any time.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> decider = Decider.load(save_router(router, Path(tempfile.mkdtemp()) / "router"))
        >>> decision = decider.decide(DecisionRequest("sing a song"))
        >>> decision.expert, decision.reason, decision.propensity
        ('expert_1', 'router', 1.0)
    """

    def __init__(
        self,
        predictor: Predictor | None,
        config: RoutingConfig | None = None,
        *,
        affinity: SessionAffinity | None = None,
        exploration: ExplorationBudget | None = None,
        random: Callable[[], float] = random.random,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self.predictor = predictor
        self._config = config or RoutingConfig()
        self._affinity = affinity or SessionAffinity(self._config)
        self._exploration = exploration or ExplorationBudget(self._config.exploration)
        self._random = random
        self._new_id = new_id or DecisionIds(os.urandom(16)).new

    @classmethod
    def load(cls, folder: str | os.PathLike[str], config: RoutingConfig | None = None) -> Decider:
        """Load a stored router and return its decider."""
        return cls(Predictor.load(folder), config)

    def decide(
        self, request: DecisionRequest, statuses: Mapping[str, ExpertStatus] | None = None
    ) -> Decision:
        """Decide for one request.

        Args:
            request: The input, its target and what it needs.
            statuses: State of each expert that may be called, by name; by default, all experts of
                the router are available. Without a router, the first expert here is the default.

        Raises:
            ArgumentError: The target cannot be reached, or the router has no prices.
        """
        if self.predictor is None:
            return self.pass_through(request, statuses or {})
        predictor = self.predictor_for(self.predictor, request)
        point = predictor.point(request.target)
        prediction = predictor.predict(request.text, point, request.coin_key)
        if statuses is None:
            statuses = {name: ExpertStatus() for name in predictor.experts[: predictor.n_experts]}
        return self.choose(predictor, prediction, point, request, statuses)

    def predictor_for(self, predictor: P, request: DecisionRequest) -> P:
        """Return the predictor for a request, without cascade stages if answers cannot be read.

        A stage that was trained on log-probabilities decides badly without them: on a table where
        nothing else is informative, it reached 74% of the best expert's score instead of 96%.
        """
        is_short = request.answers == "beginning" and predictor.look_characters is None
        if request.answers == "none" or is_short:
            return predictor.without_looks
        if predictor.logprob_experts & request.without_logprobs:
            return predictor.without_looks
        return predictor

    def choose(
        self,
        predictor: Predictor,
        prediction: Prediction | None,
        point: OperatingPoint | None,
        request: DecisionRequest,
        statuses: Mapping[str, ExpertStatus],
    ) -> Decision:
        """Decide from a prediction, which is ``None`` if the router failed or timed out."""
        if request.owner is None:
            default = self._fallback_expert(predictor, prediction, point)
            decision = self._apply_policy(predictor, prediction, request, statuses, default)
        else:
            # Only this expert holds the response that the request continues: an error is better
            # than an answer without that context.
            decision = decide_pinned(request.owner, request, statuses, "sticky")
        return replace(
            decision,
            prediction=prediction,
            experts=predictor.experts,
            router=predictor.digest,
            target=request.target,
            first_choice="" if prediction is None else self.first_choice(prediction),
            decision_id=request.decision_id or self._new_id(),
        )

    def pass_through(
        self, request: DecisionRequest, statuses: Mapping[str, ExpertStatus]
    ) -> Decision:
        """Decide without a router: call the default expert first, then the others in order."""
        if request.owner is not None:
            decision = decide_pinned(request.owner, request, statuses, "sticky")
        else:
            default = self._config.default or next(iter(statuses), "")
            decision = decide(None, request, statuses, self._config, default, None, self._random)
            if decision.reason == "router_timeout":
                decision = replace(decision, reason="passthrough")
        return replace(
            decision,
            experts=tuple(statuses),
            target=request.target,
            decision_id=request.decision_id or self._new_id(),
        )

    def pin(
        self, expert: str, request: DecisionRequest, statuses: Mapping[str, ExpertStatus]
    ) -> Decision:
        """Return a decision pinned to the expert that the client named."""
        decision_id = request.decision_id or self._new_id()
        return replace(decide_pinned(expert, request, statuses), decision_id=decision_id)

    def remember(self, conversation: str | None, expert: str) -> None:
        """Remember which expert answered, so that the conversation stays with it."""
        self._affinity.remember(conversation, expert)

    def first_choice(self, prediction: Prediction) -> str:
        """Return the router's choice before conversations, circuits and exploration."""
        default = self._config.default
        if default is not None and prediction.is_out_of_distribution:
            return default
        return prediction.expert

    def _apply_policy(
        self,
        predictor: Predictor,
        prediction: Prediction | None,
        request: DecisionRequest,
        statuses: Mapping[str, ExpertStatus],
        default: str,
    ) -> Decision:
        """Choose an expert, or a cascade's first stage."""
        looks = predictor.looks
        if looks:
            stage_statuses = {
                name: status_of_look(map(statuses.get, looks[name])) for name in looks
            }
            statuses = {**statuses, **{name: each for name, each in stage_statuses.items() if each}}
        decision = decide(
            prediction,
            request,
            statuses,
            self._config,
            default,
            self._affinity.get(request.conversation),
            self._random,
            self._exploration.covers,
        )
        self._exploration.spend(decision.exploration_usd)
        return resolve_look(decision, looks)

    def _fallback_expert(
        self, predictor: Predictor, prediction: Prediction | None, point: OperatingPoint | None
    ) -> str:
        """Return the expert for an input that the router cannot judge, at a price weight."""
        named = self._config.default or (prediction.default if prediction is not None else "")
        return named or predictor.default_at(None if point is None else point.price_weight)
