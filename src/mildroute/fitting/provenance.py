"""The origin of a fitted router: its table, target, judge and simplest alternative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.fitting.alternatives import Alternative
from mildroute.routers.frontier.target import Target


@dataclass(frozen=True)
class Provenance:
    """A router's training table and the choices that depend on it.

    Attributes:
        data_hash: Hash of the table's content.
        seen: Sorted 64-bit fingerprints of the table's inputs, which let an evaluation detect
            training rows, shape (n,).
        target: Target that selected the operating point, or `None`.
        judge: Name of the judge that gave the scores, or `None` if unknown.
        alternative: The simplest alternative that meets the target, or `None` without dollars.

    Example:
        >>> Provenance("abc", np.array([1, 2])).target is None
        True
    """

    data_hash: str
    seen: NDArray[np.int64]
    target: Target | None = None
    judge: str | None = None
    alternative: Alternative | None = None

    @classmethod
    def from_plain(cls, fields: Mapping[str, Any]) -> Provenance:
        """Return the provenance from the result of ``to_plain``."""
        target = fields["target"]
        alternative = fields["alternative"]
        return cls(
            fields["data_hash"],
            fields["seen"],
            None if target is None else Target(target["kind"], float(target["value"])),
            fields["judge"],
            None if alternative is None else Alternative.from_plain(alternative),
        )

    def to_plain(self) -> dict[str, Any]:
        """Return plain values and arrays that an artifact can hold."""
        target = self.target
        return {
            "data_hash": self.data_hash,
            "seen": self.seen,
            "target": (
                None if target is None else {"kind": target.kind, "value": float(target.value)}
            ),
            "judge": self.judge,
            "alternative": None if self.alternative is None else self.alternative.to_plain(),
        }
