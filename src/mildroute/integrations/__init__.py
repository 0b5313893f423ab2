"""Routers inside other people's gateways and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.integrations.litellm import MildroutePlugin

__all__ = ["MildroutePlugin"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "litellm": ("MildroutePlugin",),
    },
)
