"""A router inside LiteLLM: a routing plug-in, a classifier of its Auto Router, and their log.

LiteLLM itself is only imported by :class:`MildrouteLogger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.integrations.litellm.classifier import (
        MildrouteClassifier as MildrouteClassifier,
    )
    from mildroute.integrations.litellm.logger import MildrouteLogger as MildrouteLogger
    from mildroute.integrations.litellm.plugin import MildroutePlugin as MildroutePlugin

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.integrations.litellm.classifier": ("MildrouteClassifier",),
        "mildroute.integrations.litellm.logger": ("MildrouteLogger",),
        "mildroute.integrations.litellm.plugin": ("MildroutePlugin",),
    },
)
