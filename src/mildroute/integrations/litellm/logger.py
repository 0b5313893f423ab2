"""A LiteLLM callback that adds each call and its bill to the decision log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from mildroute.decision.outcomes import Outcome
from mildroute.decision.service import DecisionService
from mildroute.integrations.litellm.ticket import METADATA, SIGNAL, Ticket, ticket_in

if TYPE_CHECKING:
    CustomLogger = object
else:
    try:
        from litellm.integrations.custom_logger import CustomLogger
    except ModuleNotFoundError:
        # Only LiteLLM calls the methods, and it requires its own base class.
        CustomLogger = object

__all__ = ["MildrouteLogger"]


class MildrouteLogger(CustomLogger):
    """A logger that reports every call to an expert, with LiteLLM's cost in dollars.

    The proxy's responses get the header ``x-mildroute-decision-id``, to which feedback refers.

    Args:
        service: The plug-in's or classifier's service.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> service = DecisionService.load(save_router(router, Path(tempfile.mkdtemp()) / "router"))
        >>> logger = MildrouteLogger(service)  # litellm.callbacks = [logger]
    """

    def __init__(self, service: DecisionService) -> None:
        super().__init__()
        self._service = service

    async def async_pre_call_hook(self, *, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Add a ticket to the metadata for a classifier, which cannot change them itself."""
        for name in METADATA:
            if isinstance(data.get(name), dict):
                data[name][SIGNAL] = Ticket()
                break
        return data

    async def async_post_call_response_headers_hook(
        self, *, data: dict[str, Any], **_: Any
    ) -> dict[str, str] | None:
        """Return a header with the decision's id, or ``None`` if there was no decision."""
        ticket = _ticket_of(data)
        return None if ticket is None else {"x-mildroute-decision-id": ticket.decision_id}

    async def async_log_success_event(
        self, *, kwargs: dict[str, Any], start_time: datetime, end_time: datetime, **_: Any
    ) -> None:
        """Report a successful call."""
        self._report(kwargs, start_time, end_time, 200, "")

    async def async_log_failure_event(
        self, *, kwargs: dict[str, Any], start_time: datetime, end_time: datetime, **_: Any
    ) -> None:
        """Report a failed call."""
        error = kwargs.get("exception")
        status = getattr(error, "status_code", None)
        reason = type(error).__name__ if error is not None else "failed"
        self._report(kwargs, start_time, end_time, status if isinstance(status, int) else 0, reason)

    def _report(
        self, kwargs: dict[str, Any], start: datetime, end: datetime, status: int, reason: str
    ) -> None:
        ticket = _ticket_of(kwargs.get("litellm_params"))
        payload = kwargs.get("standard_logging_object")
        if ticket is None or not isinstance(payload, Mapping):
            return
        usage = (payload.get("metadata") or {}).get("usage_object") or {}
        details = usage.get("prompt_tokens_details") or {}
        first_byte = kwargs.get("completion_start_time")
        cost = kwargs.get("response_cost")
        outcome = Outcome(
            expert=_expert_of(ticket, payload),
            status=status,
            reason=reason,
            tokens_in=payload.get("prompt_tokens") or 0,
            tokens_out=payload.get("completion_tokens") or 0,
            cached_tokens=details.get("cached_tokens") or 0,
            cost_usd=0.0 if reason and cost is None else cost,
            seconds=max((end - start).total_seconds(), 0.0),
            first_byte_seconds=(
                max((first_byte - start).total_seconds(), 0.0)
                if isinstance(first_byte, datetime)
                else None
            ),
        )
        self._service.report_outcome(ticket.decision_id, outcome, conversation=ticket.conversation)


def _ticket_of(request: Any) -> Ticket | None:
    """Return the ticket in a request's metadata, or ``None`` if there is no decision."""
    if not isinstance(request, Mapping):
        return None
    tickets = [ticket_in(request.get(name)) for name in METADATA]
    return next((ticket for ticket in tickets if ticket is not None and ticket.decision_id), None)


def _expert_of(ticket: Ticket, payload: Mapping[str, Any]) -> str:
    """Return the expert that was called, or the model's name if no expert has it."""
    routing_decision = (payload.get("metadata") or {}).get("routing_decision") or {}
    model = str(payload.get("model") or "")
    return ticket.experts.get(routing_decision.get("tier") or model, model)
