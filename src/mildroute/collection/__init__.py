"""Collecting costs.

Call experts, judge their answers, and persist every result so that nothing is paid twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.collection.job import (
        CollectionEstimate as CollectionEstimate,
        CollectionInterrupted as CollectionInterrupted,
        CollectionJob as CollectionJob,
        CollectionPlan as CollectionPlan,
        CollectionResult as CollectionResult,
        collect as collect,
    )
    from mildroute.collection.queries import QueryFile as QueryFile, open_queries as open_queries
    from mildroute.collection.runner import ExpertProgress as ExpertProgress

__all__, __getattr__, __dir__ = lazy_exports(__name__)
