"""Experts that answer queries: models behind an HTTP endpoint, classifiers, people, and recordings of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.experts.annotators import AnnotatorExpert
    from mildroute.experts.base import Answer, CostEstimate, Expert, Query
    from mildroute.experts.classifier import Classifier
    from mildroute.experts.config import ExpertFile, ExpertSpec, build_expert, read_experts
    from mildroute.experts.openai import OpenAIExpert
    from mildroute.experts.prompts import PromptTemplate
    from mildroute.experts.replay import RecordingExpert, ReplayExpert
    from mildroute.experts.retry import Backoff
    from mildroute.experts.secrets import Secret
    from mildroute.experts.settings import CallSettings, ModelSettings, Timeouts

__all__ = [
    "AnnotatorExpert",
    "Answer",
    "Backoff",
    "CallSettings",
    "Classifier",
    "CostEstimate",
    "Expert",
    "ExpertFile",
    "ExpertSpec",
    "ModelSettings",
    "OpenAIExpert",
    "PromptTemplate",
    "Query",
    "RecordingExpert",
    "ReplayExpert",
    "Secret",
    "Timeouts",
    "build_expert",
    "read_experts",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "annotators": ("AnnotatorExpert",),
        "base": (
            "Answer",
            "Expert",
            "CostEstimate",
            "Query",
        ),
        "classifier": ("Classifier",),
        "config": (
            "ExpertFile",
            "ExpertSpec",
            "build_expert",
            "read_experts",
        ),
        "openai": ("OpenAIExpert",),
        "prompts": ("PromptTemplate",),
        "replay": (
            "ReplayExpert",
            "RecordingExpert",
        ),
        "retry": ("Backoff",),
        "secrets": ("Secret",),
        "settings": (
            "CallSettings",
            "ModelSettings",
            "Timeouts",
        ),
    },
)
