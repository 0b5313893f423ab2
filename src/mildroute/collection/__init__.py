"""Collection of costs: call experts, judge their answers, and store every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.collection.collector import collect as collect
    from mildroute.collection.estimate import CollectionEstimate as CollectionEstimate
    from mildroute.collection.job import CollectionJob as CollectionJob
    from mildroute.collection.progress import ExpertProgress as ExpertProgress
    from mildroute.collection.queries import Queries as Queries, open_queries as open_queries
    from mildroute.collection.results import (
        CollectionInterrupted as CollectionInterrupted,
        CollectionPlan as CollectionPlan,
        CollectionResult as CollectionResult,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.collection.collector": ("collect",),
        "mildroute.collection.estimate": ("CollectionEstimate",),
        "mildroute.collection.job": ("CollectionJob",),
        "mildroute.collection.progress": ("ExpertProgress",),
        "mildroute.collection.queries": ("Queries", "open_queries"),
        "mildroute.collection.results": (
            "CollectionInterrupted",
            "CollectionPlan",
            "CollectionResult",
        ),
    },
)
