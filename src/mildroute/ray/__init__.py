"""Collect, encode and train on a Ray cluster, for jobs that one machine cannot hold."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.ray.collect import collect_shards as collect_shards
    from mildroute.ray.encode import encode_dataset as encode_dataset
    from mildroute.ray.train import train_router as train_router

# Ray reports usage statistics unless told otherwise, and mildroute promises no telemetry.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.ray.collect": ("collect_shards",),
        "mildroute.ray.encode": ("encode_dataset",),
        "mildroute.ray.train": ("train_router",),
    },
)
