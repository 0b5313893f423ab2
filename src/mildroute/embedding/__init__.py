"""Vectors of a table's inputs as Parquet shards, made once, part by part, and never of two encoders in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.lazy import lazy_names

if TYPE_CHECKING:
    from mildroute.embedding.choice import encoder_of, encoder_without_data
    from mildroute.embedding.job import Embedded, Estimate, Job, embed

__all__ = ["Embedded", "Estimate", "Job", "embed", "encoder_of", "encoder_without_data"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "choice": ("encoder_of", "encoder_without_data"),
        "job": ("Embedded", "Estimate", "Job", "embed"),
    },
)
