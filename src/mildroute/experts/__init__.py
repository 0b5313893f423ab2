"""Experts that answer queries: models behind an endpoint, classifiers, people and recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.experts.annotators import AnnotatorExpert as AnnotatorExpert
    from mildroute.experts.base import (
        Answer as Answer,
        CostEstimate as CostEstimate,
        Expert as Expert,
        Query as Query,
    )
    from mildroute.experts.classifier import ClassifierExpert as ClassifierExpert
    from mildroute.experts.config import (
        ExpertFile as ExpertFile,
        ExpertSpec as ExpertSpec,
        build_expert as build_expert,
        read_experts as read_experts,
    )
    from mildroute.experts.openai import OpenAIExpert as OpenAIExpert
    from mildroute.experts.prompts import PromptTemplate as PromptTemplate
    from mildroute.experts.replay import ReplayExpert as ReplayExpert
    from mildroute.experts.retry import Backoff as Backoff
    from mildroute.experts.secrets import Secret as Secret
    from mildroute.experts.settings import (
        CallSettings as CallSettings,
        ModelSettings as ModelSettings,
        Timeouts as Timeouts,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.experts.annotators": ("AnnotatorExpert",),
        "mildroute.experts.base": ("Answer", "CostEstimate", "Expert", "Query"),
        "mildroute.experts.classifier": ("ClassifierExpert",),
        "mildroute.experts.config": ("ExpertFile", "ExpertSpec", "build_expert", "read_experts"),
        "mildroute.experts.openai": ("OpenAIExpert",),
        "mildroute.experts.prompts": ("PromptTemplate",),
        "mildroute.experts.replay": ("ReplayExpert",),
        "mildroute.experts.retry": ("Backoff",),
        "mildroute.experts.secrets": ("Secret",),
        "mildroute.experts.settings": ("CallSettings", "ModelSettings", "Timeouts"),
    },
)
