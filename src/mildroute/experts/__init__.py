"""Experts that answer queries: models behind an HTTP endpoint, classifiers, people, and recordings of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.experts.protocol import Answer, Expert, Query

__all__ = ["Answer", "Expert", "Query"]

__getattr__, __dir__ = lazy_names(__name__, {"protocol": ("Answer", "Expert", "Query")})
