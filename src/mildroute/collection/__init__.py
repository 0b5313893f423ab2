"""Collecting costs: call experts, judge their answers, and persist every result so that nothing is paid twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.collection.estimate import Estimate
    from mildroute.collection.job import CollectionJob, CollectionResult, collect
    from mildroute.collection.queries import QueryFile, open_queries
    from mildroute.collection.runner import ExpertProgress

__all__ = ["CollectionJob", "CollectionResult", "Estimate", "ExpertProgress", "QueryFile", "collect", "open_queries"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "estimate": ("Estimate",),
        "job": (
            "CollectionResult",
            "CollectionJob",
            "collect",
        ),
        "queries": (
            "QueryFile",
            "open_queries",
        ),
        "runner": ("ExpertProgress",),
    },
)
