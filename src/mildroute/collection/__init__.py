"""Collection of costs: call experts, judge their answers, and store every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.collection.estimate import CollectionEstimate as CollectionEstimate
    from mildroute.collection.job import (
        CollectionInterrupted as CollectionInterrupted,
        CollectionJob as CollectionJob,
        CollectionPlan as CollectionPlan,
        CollectionResult as CollectionResult,
        collect as collect,
    )
    from mildroute.collection.progress import ExpertProgress as ExpertProgress
    from mildroute.collection.queries import QueryFile as QueryFile, open_queries as open_queries

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.collection.estimate": ("CollectionEstimate",),
        "mildroute.collection.job": (
            "CollectionInterrupted",
            "CollectionJob",
            "CollectionPlan",
            "CollectionResult",
            "collect",
        ),
        "mildroute.collection.progress": ("ExpertProgress",),
        "mildroute.collection.queries": ("QueryFile", "open_queries"),
    },
)
