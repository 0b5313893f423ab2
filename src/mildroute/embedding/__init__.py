"""Vectors of a table's inputs as Parquet shards, made once, part by part, and never of two encoders in one folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_names

if TYPE_CHECKING:
    from mildroute.embedding.job import Embedded, EmbeddingJob, Estimate, embed, encoder_of, encoder_without_data

__all__ = ["Embedded", "EmbeddingJob", "Estimate", "embed", "encoder_of", "encoder_without_data"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "job": (
            "Embedded",
            "Estimate",
            "EmbeddingJob",
            "embed",
            "encoder_of",
            "encoder_without_data",
        ),
    },
)
