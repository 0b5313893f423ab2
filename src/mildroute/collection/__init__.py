"""Collection of costs: call experts, judge their answers, and store every result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

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

__all__, __getattr__, __dir__ = lazy_exports(__name__)
