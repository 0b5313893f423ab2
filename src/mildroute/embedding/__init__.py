"""Vectors of a table's inputs as Parquet shards.

They are made once, part by part, and never of two encoders in one folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._optional import lazy_exports

if TYPE_CHECKING:
    from mildroute.embedding.job import (
        EmbeddingEstimate as EmbeddingEstimate,
        EmbeddingJob as EmbeddingJob,
        EmbeddingResult as EmbeddingResult,
        embed as embed,
        encoder_of as encoder_of,
        encoder_without_data as encoder_without_data,
    )

__all__, __getattr__, __dir__ = lazy_exports(__name__)
