"""The gateway: an OpenAI-compatible endpoint that chooses the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.decision.export import costs_from_log as costs_from_log
    from mildroute.gateway.app import (
        Gateway as Gateway,
        GatewayServices as GatewayServices,
        create_app as create_app,
    )
    from mildroute.gateway.config import GatewayConfig as GatewayConfig
    from mildroute.gateway.factory import load_gateway as load_gateway

__all__, __getattr__, __dir__ = lazy_exports(__name__)
