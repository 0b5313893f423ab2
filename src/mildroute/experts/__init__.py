"""Experts that answer queries: models behind an HTTP endpoint, classifiers, people, and recordings of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.experts.backoff import Backoff
    from mildroute.experts.call_settings import CallSettings, Timeouts
    from mildroute.experts.classifier import Classifier
    from mildroute.experts.endpoint import Endpoint
    from mildroute.experts.file import ExpertFile, read_experts
    from mildroute.experts.kinds import build
    from mildroute.experts.model_settings import ModelSettings
    from mildroute.experts.people import People
    from mildroute.experts.prompt import Prompt
    from mildroute.experts.protocol import Answer, Expert, Outlay, Query
    from mildroute.experts.recorded import Recorded
    from mildroute.experts.recorder import Recorder
    from mildroute.experts.secret import Secret
    from mildroute.experts.spec import ExpertSpec

__all__ = [
    "Answer",
    "Backoff",
    "CallSettings",
    "Classifier",
    "Endpoint",
    "Expert",
    "ExpertFile",
    "ExpertSpec",
    "ModelSettings",
    "Outlay",
    "People",
    "Prompt",
    "Query",
    "Recorded",
    "Recorder",
    "Secret",
    "Timeouts",
    "build",
    "read_experts",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "backoff": ("Backoff",),
        "call_settings": ("CallSettings", "Timeouts"),
        "classifier": ("Classifier",),
        "endpoint": ("Endpoint",),
        "file": ("ExpertFile", "read_experts"),
        "kinds": ("build",),
        "model_settings": ("ModelSettings",),
        "people": ("People",),
        "prompt": ("Prompt",),
        "protocol": ("Answer", "Expert", "Outlay", "Query"),
        "recorded": ("Recorded",),
        "recorder": ("Recorder",),
        "secret": ("Secret",),
        "spec": ("ExpertSpec",),
    },
)
