"""The options for reading a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mildroute.costs.missing_scores import Missing
from mildroute.exceptions import ArgumentError

__all__ = ["ColumnMapping", "ReadOptions"]


@dataclass(frozen=True)
class ColumnMapping:
    """The caller's description of a source's columns; other columns are inferred.

    Attributes:
        input: Column of the texts.
        scores: Score column of each expert, or a list of columns named after the experts.
        dollars: Column of the dollars of each expert.
        score_scale: Worst and best score, if they are not 0 and 1.
        latency_unit: 's' or 'ms'.
    """

    input: str | None = None
    scores: Mapping[str, str] | Sequence[str] | None = None
    dollars: Mapping[str, str] | None = None
    score_scale: tuple[float, float] | None = None
    latency_unit: str | None = None

    def __post_init__(self) -> None:
        """Check the values that can be checked without a table."""
        if isinstance(self.scores, str):
            object.__setattr__(self, "scores", [self.scores])
        if self.latency_unit not in (None, "s", "ms"):
            raise ArgumentError(f"latency_unit must be 's' or 'ms', got {self.latency_unit!r}.")
        if self.score_scale is not None and (
            len(self.score_scale) != 2 or self.score_scale[0] == self.score_scale[1]
        ):
            raise ArgumentError(
                "score_scale must be the worst and the best score, such as (0, 100), got"
                f" {self.score_scale!r}."
            )


@dataclass(frozen=True)
class ReadOptions:
    """The options for reading a table.

    Attributes:
        experts: The experts to keep, in this order; `None` keeps all.
        missing: Treatment of missing scores.
        answers: Whether to read the experts' answers as well.
        mapping: The caller's description of the columns; `None` infers all of them.
    """

    experts: Sequence[str] | None = None
    missing: Missing = "raise"
    answers: bool = False
    mapping: ColumnMapping | None = None
