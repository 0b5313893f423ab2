"""Collecting on a cluster: the job of :mod:`mildroute.collecting`, with the questioning spread over Ray Data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.engine.collecting.makers import Makers
    from mildroute.engine.collecting.on_ray import collect_on_ray

__all__ = ["Makers", "collect_on_ray"]

__getattr__, __dir__ = lazy_names(__name__, {"makers": ("Makers",), "on_ray": ("collect_on_ray",)})
