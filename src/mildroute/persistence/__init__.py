"""Storage of fitted routers in folders, without pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.persistence.artifact import (
        load_router as load_router,
        read_manifest as read_manifest,
        save_router as save_router,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.persistence.artifact": ("load_router", "read_manifest", "save_router"),
    },
)
