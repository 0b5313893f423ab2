"""The union encoder: several encoders side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from mildroute.encoders.base import Encoder
from mildroute.encoders.inputs import as_list
from mildroute.exceptions import ArgumentError

__all__ = ["UnionEncoder"]


class UnionEncoder(Encoder):
    """An encoder that concatenates the vectors of several encoders.

    The vectors are sparse if any encoder's vectors are sparse.

    Args:
        encoders: The encoders, at least one.
        weights: Factor of each encoder's vectors; None weights all equally.

    Attributes:
        encoders_: The fitted encoders.

    Example:
        >>> from mildroute.encoders.hashing import HashingEncoder
        >>> characters = HashingEncoder(unit="character", ngrams=(3, 4), columns=16)
        >>> UnionEncoder([HashingEncoder(columns=8), characters]).fit_transform(["hi"]).shape
        (1, 24)
    """

    encoders_: list[Any]

    def __init__(self, encoders: Sequence[Any], *, weights: Sequence[float] | None = None) -> None:
        self.encoders = encoders
        self.weights = weights

    @property
    def learns_from_rows(self) -> bool:  # type: ignore[override]
        """Return whether any of the encoders learns from rows."""
        return any(getattr(encoder, "learns_from_rows", True) for encoder in self.encoders)

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002
        """Fit each encoder on n inputs and encode them, shape (n, d)."""
        rows = self._read(X)
        self._check_parameters()
        self.encoders_ = [clone(encoder) for encoder in self.encoders]
        return self._join([encoder.fit_transform(rows) for encoder in self.encoders_])

    def _read(self, X: Any) -> list[Any]:
        # Each encoder checks its inputs.
        return as_list(X)

    def _fit(self, rows: list[Any]) -> None:
        self._check_parameters()
        self.encoders_ = [clone(encoder).fit(rows) for encoder in self.encoders]

    def _encode(self, rows: list[Any]) -> Any:
        return self._join([encoder.transform(rows) for encoder in self.encoders_])

    def _join(self, parts: list[Any]) -> Any:
        weights = [1.0] * len(parts) if self.weights is None else self.weights
        scaled = [part * np.float32(weight) for part, weight in zip(parts, weights, strict=True)]
        if any(sparse.issparse(part) for part in scaled):
            return sparse.hstack(
                [sparse.csr_matrix(part) for part in scaled], format="csr", dtype=np.float32
            )
        return np.hstack(scaled).astype(np.float32, copy=False)

    def _check_parameters(self) -> None:
        if not len(self.encoders):
            raise ArgumentError(
                "a union must have at least one encoder, got none; pass a list of encoders."
            )
        if self.weights is not None and len(self.weights) != len(self.encoders):
            raise ArgumentError(
                f"weights must have one number per encoder, {len(self.encoders)}, got"
                f" {len(self.weights)}."
            )
