"""The simplest alternative to a trained router: a one-line rule.

A rule sends the prompts of one group, above one length or in one script to one expert, and all
others to a second expert: a decision tree of depth 1. A router is useful only if it beats the best
rule of this kind, which anyone could write by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._scripts import script_of

__all__ = ["SimpleRule"]

Feature: TypeAlias = Literal["group", "characters", "script"]


@dataclass(frozen=True)
class SimpleRule:
    """A one-line rule that sends each prompt to one of two experts.

    Attributes:
        feature: The property of a prompt that the rule tests.
        value: The group, the length above which a prompt matches, or the script.
        inside: Index of the expert for the prompts that match.
        outside: Index of the expert for all others.

    Example:
        >>> rule = SimpleRule("characters", 10, inside=1, outside=0)
        >>> rule.words(["small", "large"])
        'prompts over 10 characters go to large, the rest to small'
        >>> rule.apply(["short", "not so short"], groups=None).tolist()
        [0, 1]
    """

    feature: Feature
    value: str | int
    inside: int
    outside: int

    def words(self, experts: Sequence[str]) -> str:
        """Return the rule as a clause, without a capital letter or a period.

        Args:
            experts: Name of each expert.
        """
        inside, outside = experts[self.inside], experts[self.outside]
        if self.feature == "group":
            return f"group {self.value!r} goes to {inside}, everything else to {outside}"
        if self.feature == "characters":
            return f"prompts over {self.value:,} characters go to {inside}, the rest to {outside}"
        script = (
            "other scripts or without letters" if self.value == "other" else f"{self.value} script"
        )
        return f"prompts in {script} go to {inside}, the rest to {outside}"

    def apply(self, texts: Sequence[str], groups: Sequence[str] | None) -> NDArray[np.intp]:
        """Return the index of the expert for each prompt, shape (n,).

        Args:
            texts: The prompts.
            groups: Group of each prompt; only a rule about a group reads it. A group that is
                ``None`` matches no rule.
        """
        if self.feature == "characters":
            matches = [len(text) > int(self.value) for text in texts]
        elif self.feature == "script":
            matches = [script_of(text) == self.value for text in texts]
        elif groups is None:
            raise ArgumentError(
                f"the rule tests whether the group is {self.value!r}, got no groups; pass groups,"
                " one per prompt."
            )
        elif len(groups) != len(texts):
            raise ShapeError(f"groups must be ({len(texts)},), one per row, got {len(groups)}.")
        else:
            matches = [group is not None and str(group) == self.value for group in groups]
        return np.where(np.array(matches, dtype=bool), self.inside, self.outside).astype(np.intp)
