"""A classifier for LiteLLM's Auto Router, whose tiers are experts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Self

from mildroute.decision.service import DecisionService
from mildroute.exceptions import MildrouteError
from mildroute.integrations.litellm.plugin import check_experts
from mildroute.integrations.litellm.request import caller_of, decision_request
from mildroute.integrations.litellm.ticket import ticket_in

__all__ = ["MildrouteClassifier"]

_LOG = logging.getLogger(__name__)


class MildrouteClassifier:
    """A classifier that chooses a request's tier, for ``classifier_type: custom``.

    The Auto Router handles everything else: each tier's models, pinned conversations, keyword
    rules, fallbacks and savings. If one of these decides, it does not call the classifier, and the
    request is not logged here.

    Args:
        service: The service, which makes and logs decisions.
        tiers: Tier of each expert, such as ``{"small": "SIMPLE", "large": "COMPLEX"}``; by default
            each tier has its expert's name. Experts without a tier are never chosen.

    Raises:
        ArgumentError: The router does not know an expert.

    Example:
        >>> import asyncio, tempfile
        >>> from pathlib import Path
        >>> from types import SimpleNamespace
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> service = DecisionService.load(save_router(router, Path(tempfile.mkdtemp()) / "router"))
        >>> classifier = MildrouteClassifier(service, {"expert_0": "SIMPLE", "expert_1": "COMPLEX"})
        >>> messages = [{"role": "user", "content": "sing a song"}]
        >>> context = SimpleNamespace(structured_messages=messages, metadata={})
        >>> asyncio.run(classifier.classify(context))
        'COMPLEX'
    """

    def __init__(self, service: DecisionService, tiers: Mapping[str, str] | None = None) -> None:
        check_experts(service, tiers or ())
        self._service = service
        self._tiers = tiers

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the classifier itself when LiteLLM copies the settings that contain it."""
        return self

    async def classify(self, context: Any) -> str | None:
        """Return a request's tier; ``None`` leaves the choice to ``classifier_fallback``.

        Args:
            context: LiteLLM's ``RoutingContext``.
        """
        statuses = self._service.statuses
        tiers = {name: name for name in statuses} if self._tiers is None else self._tiers
        request = decision_request(context, self._service.config.routing)
        try:
            decision = await self._service.adecide(
                request,
                {name: status for name, status in statuses.items() if name in tiers},
                caller=caller_of(context.metadata),
            )
        except MildrouteError as error:
            _LOG.warning("a request is left to the Auto Router's fallback: %s", error)
            return None
        # LiteLLM drops a classifier's signals, so the logger has already added a ticket to fill in.
        ticket = ticket_in(context.metadata)
        if ticket is not None:
            ticket.enter(decision, request.conversation)
            ticket.experts = {tier: expert for expert, tier in tiers.items()}
            if decision.expert is not None:
                # Experts may share a tier.
                ticket.experts[tiers[decision.expert]] = decision.expert
        return None if decision.expert is None else tiers[decision.expert]
