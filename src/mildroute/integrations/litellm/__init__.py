"""LiteLLM integrations: a routing plug-in, an Auto Router classifier, and their logger.

LiteLLM itself is imported only by :class:`MildrouteLogger`.
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
