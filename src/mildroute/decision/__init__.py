"""Deciding which expert handles an input, and the log of decisions and their outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.decision.decider import Decider as Decider
    from mildroute.decision.decision import Decision as Decision
    from mildroute.decision.outcomes import Outcome as Outcome
    from mildroute.decision.request import (
        DecisionRequest as DecisionRequest,
        ExpertStatus as ExpertStatus,
    )
    from mildroute.decision.service import (
        Caller as Caller,
        DecisionService as DecisionService,
        ServiceConfig as ServiceConfig,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.decision.decider": ("Decider",),
        "mildroute.decision.decision": ("Decision",),
        "mildroute.decision.outcomes": ("Outcome",),
        "mildroute.decision.request": ("DecisionRequest", "ExpertStatus"),
        "mildroute.decision.service": ("Caller", "DecisionService", "ServiceConfig"),
    },
)
