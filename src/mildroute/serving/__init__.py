"""The gateway: an OpenAI-compatible endpoint that chooses the expert."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.serving.app import Gateway, create_app
    from mildroute.serving.assembly import assemble
    from mildroute.serving.from_log import costs_from_log
    from mildroute.serving.parts import Parts
    from mildroute.serving.settings import Settings

__all__ = ["Gateway", "Parts", "Settings", "assemble", "costs_from_log", "create_app"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "app": ("Gateway", "create_app"),
        "assembly": ("assemble",),
        "from_log": ("costs_from_log",),
        "parts": ("Parts",),
        "settings": ("Settings",),
    },
)
