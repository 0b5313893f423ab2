"""Routers as folders: how an estimator becomes files and comes back, without pickle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.persistence.artifact import load_router, read_manifest, save_router

__all__ = ["load_router", "read_manifest", "save_router"]

__getattr__, __dir__ = lazy_names(__name__, {"artifact": ("load_router", "read_manifest", "save_router")})
