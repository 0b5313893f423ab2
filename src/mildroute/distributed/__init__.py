"""Larger than one process: collect, embed and train on shards, locally or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.distributed.collect import (
        Factories as Factories,
        collect_on_ray as collect_on_ray,
    )
    from mildroute.distributed.shards import (
        Shards as Shards,
        open_shards as open_shards,
        vector_column as vector_column,
    )
    from mildroute.distributed.statistics import (
        LinearConfig as LinearConfig,
        MLPConfig as MLPConfig,
    )
    from mildroute.distributed.training import TrainingResult as TrainingResult, train as train

__all__, __getattr__, __dir__ = lazy_exports(__name__)
