"""Integrations of the router with other gateways and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.integrations.litellm import MildroutePlugin as MildroutePlugin

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.integrations.litellm": ("MildroutePlugin",),
    },
)
