"""Larger than one process: collect, embed and train on shards, locally or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.distributed.collect import Factories, collect_on_ray
    from mildroute.distributed.config import LinearConfig, MLPConfig
    from mildroute.distributed.shards import Shards, open_shards, vector_column
    from mildroute.distributed.training import TrainingResult, train

__all__ = ["Factories", "LinearConfig", "MLPConfig", "Shards", "TrainingResult", "collect_on_ray", "open_shards", "train", "vector_column"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "collect": (
            "Factories",
            "collect_on_ray",
        ),
        "config": (
            "LinearConfig",
            "MLPConfig",
        ),
        "shards": (
            "Shards",
            "open_shards",
            "vector_column",
        ),
        "training": (
            "TrainingResult",
            "train",
        ),
    },
)
