"""A LiteLLM routing plug-in that narrows a model group to the model that should answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mildroute.decision.service import DecisionService
from mildroute.exceptions import ArgumentError, MildrouteError
from mildroute.integrations.litellm.request import RoutingContext, caller_of, decision_request
from mildroute.integrations.litellm.ticket import SIGNAL, Ticket, ticket_in
from mildroute.routers.frontier.target import Target

__all__ = ["MildroutePlugin", "check_experts"]

_LOG = logging.getLogger(__name__)


class MildroutePlugin:
    """A plug-in that narrows the candidates to the best expert's model.

    Each retry narrows them to the next best expert's model, without a new decision. Groups with one
    model, or without any expert, are unchanged. If the chosen model has several deployments,
    LiteLLM selects one by its own settings. If a request's target cannot be reached, the choice is
    left to LiteLLM, with a warning.

    In Python, pass it as ``Router(plugins=[plugin])`` and use the asynchronous methods. For the
    proxy (1.94 or newer), create it in a module next to ``config.yaml`` and name it there.

    Args:
        service: The service, which makes and logs decisions.
        models: The ``model`` under ``litellm_params`` for each expert; by default, an expert's name
            is its model's, with or without the provider.
        targets: Target for each model group that has its own, by the group's name.

    Raises:
        ArgumentError: The router does not know an expert, or cannot reach a target.

    Example:
        >>> import asyncio, tempfile
        >>> from pathlib import Path
        >>> from types import SimpleNamespace
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> service = DecisionService.load(save_router(router, Path(tempfile.mkdtemp()) / "router"))
        >>> models = {"expert_0": "openai/sums", "expert_1": "openai/songs"}
        >>> context = SimpleNamespace(
        ...     structured_messages=[{"role": "user", "content": "sing a song"}],
        ...     candidate_models=["openai/sums", "openai/songs"],
        ...     metadata={},
        ...     signals={},
        ... )
        >>> asyncio.run(MildroutePlugin(service, models).run(context)).candidate_models
        ['openai/songs']
    """

    def __init__(
        self,
        service: DecisionService,
        models: Mapping[str, str] | None = None,
        *,
        targets: Mapping[str, Target] | None = None,
    ) -> None:
        check_experts(service, models or ())
        predictor = service.manager.predictor
        if predictor is not None:
            for target in (targets or {}).values():
                predictor.pin(target)
        self._service = service
        self._models = models
        self._targets = targets or {}

    async def run(self, context: Any) -> Any:
        """Narrow a request's candidates; LiteLLM calls this before it selects a deployment.

        Args:
            context: LiteLLM's ``RoutingContext``, which is changed and returned.
        """
        candidates: list[str] = context.candidate_models
        ticket = ticket_in(context.metadata) or Ticket()
        if not ticket.decision_id and len(set(candidates)) > 1:
            await self._decide(ticket, context)
        if not ticket.decision_id:
            return context
        context.signals[SIGNAL] = ticket
        model = ticket.next_model(candidates)
        if model is None or len(set(candidates)) < 2:
            # After a fallback to another group, LiteLLM would still allow only the candidates that
            # remained in the previous group (observed in 1.106 and 1.109).
            ticket.candidates[:] = candidates
            return context
        ticket.tried.append(model)
        ticket.candidates = [each for each in candidates if each == model]
        ticket["model"] = model
        if len(ticket.tried) > 1:
            ticket["reason"] = "next_best"
        context.candidate_models = ticket.candidates
        return context

    async def _decide(self, ticket: Ticket, context: RoutingContext) -> None:
        """Record a decision on the ticket, unless no expert is a candidate or available."""
        candidates = context.candidate_models
        models = {
            expert: model
            for expert in self._service.statuses
            if (model := self._model(expert, candidates)) is not None
        }
        if not models:
            return
        group = context.metadata.get("model_group")
        target = self._targets.get(group) if isinstance(group, str) else None
        request = decision_request(context, self._service.config.routing, target)
        statuses = self._service.statuses
        try:
            decision = await self._service.adecide(
                request,
                {expert: statuses[expert] for expert in models},
                caller=caller_of(context.metadata),
            )
        except MildrouteError as error:
            _LOG.warning("a request is left to LiteLLM: %s", error)
            return
        if decision.expert is None:
            return
        ticket.enter(decision, request.conversation)
        ordered = [models[expert] for expert in decision.order if expert in models]
        ticket.models = list(dict.fromkeys([*ordered, *candidates]))
        ticket.experts = {model: expert for expert, model in models.items()}

    def _model(self, expert: str, candidates: Sequence[str]) -> str | None:
        if self._models is not None:
            model = self._models.get(expert)
            return model if model in candidates else None
        return next(
            (model for model in candidates if expert in (model, model.partition("/")[2])), None
        )


def check_experts(service: DecisionService, names: Iterable[str]) -> None:
    """Raise an error for expert names that the service does not know.

    Raises:
        ArgumentError: A name is unknown.
    """
    experts = service.experts
    for name in names:
        if experts and name not in experts:
            raise ArgumentError(
                f"models and tiers must name the router's experts ({', '.join(experts)}), got"
                f" {name!r}."
            )
