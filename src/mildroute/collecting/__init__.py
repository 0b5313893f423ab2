"""Collecting costs: ask experts, judge their answers, write it all down so that nothing is asked or paid twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.collecting.estimate import Estimate
    from mildroute.collecting.job import Collected, Job, collect
    from mildroute.collecting.queries import QueryFile, open_queries
    from mildroute.collecting.tally import Tally

__all__ = ["Collected", "Estimate", "Job", "QueryFile", "Tally", "collect", "open_queries"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "estimate": ("Estimate",),
        "job": ("Collected", "Job", "collect"),
        "queries": ("QueryFile", "open_queries"),
        "tally": ("Tally",),
    },
)
