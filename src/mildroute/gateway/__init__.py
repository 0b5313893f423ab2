"""The gateway: an OpenAI-compatible endpoint that chooses the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.decision.export import costs_from_log as costs_from_log
    from mildroute.gateway.app import (
        Gateway as Gateway,
        GatewayServices as GatewayServices,
        create_app as create_app,
    )
    from mildroute.gateway.config import GatewayConfig as GatewayConfig
    from mildroute.gateway.factory import load_gateway as load_gateway

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.decision.export": ("costs_from_log",),
        "mildroute.gateway.app": ("Gateway", "GatewayServices", "create_app"),
        "mildroute.gateway.config": ("GatewayConfig",),
        "mildroute.gateway.factory": ("load_gateway",),
    },
)
