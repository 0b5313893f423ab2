"""How a router becomes files and comes back; :mod:`mildroute.routers.artifact` is the door to it."""

from __future__ import annotations

__all__: list[str] = []
