"""The gateway: an OpenAI-compatible endpoint that chooses the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.serving.app import Gateway, create_app
    from mildroute.serving.config import GatewayConfig
    from mildroute.serving.factory import load_gateway
    from mildroute.serving.observability.export import costs_from_log
    from mildroute.serving.services import GatewayServices

__all__ = ["Gateway", "GatewayConfig", "GatewayServices", "costs_from_log", "create_app", "load_gateway"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "app": (
            "Gateway",
            "create_app",
        ),
        "config": ("GatewayConfig",),
        "factory": ("load_gateway",),
        "observability.export": ("costs_from_log",),
        "services": ("GatewayServices",),
    },
)
