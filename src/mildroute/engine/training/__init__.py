"""Training from Parquet shards larger than memory, in one process or with Ray Data and Ray Train."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.engine.training.plans import LinearPlan, NetworkPlan
    from mildroute.engine.training.results import Trained
    from mildroute.engine.training.run import train
    from mildroute.engine.training.shards import Shards, open_shards, vector_column

__all__ = ["LinearPlan", "NetworkPlan", "Shards", "Trained", "open_shards", "train", "vector_column"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "plans": ("LinearPlan", "NetworkPlan"),
        "results": ("Trained",),
        "run": ("train",),
        "shards": ("Shards", "open_shards", "vector_column"),
    },
)
