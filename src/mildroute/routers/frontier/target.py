"""Targets that select an operating point: a quality, a budget or a price weight."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np

from mildroute.exceptions import ArgumentError

__all__ = [
    "HIGHEST_QUALITY",
    "Target",
    "TargetKind",
    "check_price_weight",
    "check_quality",
    "quality_hint",
]

# Maximum number of errors that a dollar may be worth. Cost dominates at much smaller weights, and
# products with this one are far from overflow.
_HIGHEST_PRICE_WEIGHT = 1e15
# Multiple of the best single expert's score above which a quality is assumed to be a percentage.
HIGHEST_QUALITY = 1.5


def check_quality(fraction_of_best: float) -> None:
    """Raise an error if the share of a score looks like a percentage."""
    if fraction_of_best > HIGHEST_QUALITY:
        raise ArgumentError(
            f"a quality must be at most {HIGHEST_QUALITY:g}, got {fraction_of_best:g};"
            f" {quality_hint(fraction_of_best)}"
        )


def quality_hint(value: float) -> str:
    """Return a suggestion for a quality that is too large."""
    return f"did you mean {value / 100:g}?" if 10 <= value <= 100 else "0.95 is a usual value."


def check_price_weight(price_weight: Any) -> None:
    """Raise an error for price weights that are negative, not finite, or would overflow costs."""
    weights = np.asarray(price_weight, dtype=np.float64)
    if not ((weights >= 0) & (weights <= _HIGHEST_PRICE_WEIGHT)).all():
        worst = weights.ravel()[
            np.argmax(~((weights >= 0) & (weights <= _HIGHEST_PRICE_WEIGHT)).ravel())
        ]
        raise ArgumentError(
            f"price_weight must be from 0 to {_HIGHEST_PRICE_WEIGHT:g}, got {worst:g}."
        )


def check_target(name: str, value: float) -> None:
    if not 0 <= value < np.inf:
        raise ArgumentError(f"{name} must be finite and not negative, got {value}.")


def check_promise(confidence: float, queries: int) -> None:
    if not 0 < confidence < 1:
        raise ArgumentError(
            f"confidence must lie between 0 and 1, got {confidence}; 0.95 is a usual value."
        )
    if not queries >= 1:
        raise ArgumentError(
            f"queries must be at least 1, got {queries}; it is the size of the batch that the"
            " promise covers."
        )


TargetKind: TypeAlias = Literal["price weight", "budget", "quality"]


# Kinds of targets, each with the description of a usual value.
_USUAL: dict[str, str] = {
    "price weight": "10 makes a dollar worth ten errors",
    "budget": "pass dollars per 1,000 queries, such as 1.5",
    "quality": "0.95 keeps 95% of the best expert's score",
}


@dataclass(frozen=True)
class Target:
    """A target by which an operating point is chosen.

    Attributes:
        kind: ``"price weight"`` (errors that a dollar is worth), ``"budget"`` (dollars per 1,000
            queries) or ``"quality"`` (share of the score of the best single expert by score).
        value: Value of the target.

    Example:
        >>> Target("budget", 1.5).kind
        'budget'
    """

    kind: TargetKind
    value: float

    def __post_init__(self) -> None:
        """Raise an error for invalid values."""
        if self.kind not in _USUAL:
            raise ArgumentError(
                f"a target must be {', '.join(map(repr, _USUAL))}, got {self.kind!r:.80}; for"
                " example Target('quality', 0.95)."
            )
        value: Any = self.value
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not 0 <= self.value < np.inf:
            raise ArgumentError(
                f"a {self.kind} must be a finite number, not negative, got {self.value!r:.80};"
                f" {_USUAL[self.kind]}."
            )
        if self.kind == "quality":
            check_quality(self.value)
        if self.kind == "price weight":
            check_price_weight(self.value)
