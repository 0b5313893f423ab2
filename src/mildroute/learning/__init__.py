"""Learning from traffic, from a gateway's log to a candidate router and a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute._lazy import lazy_exports

if TYPE_CHECKING:
    from mildroute.learning.learn import (
        LearningResult as LearningResult,
        LearnOptions as LearnOptions,
        learn as learn,
    )

__all__, __getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "mildroute.learning.learn": ("LearningResult", "LearnOptions", "learn"),
    },
)
