"""Wide sparse vectors brought to few dense columns, which a router fits many times faster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from mildroute.encoders.base import Encoder
from mildroute.encoders.inputs import as_list
from mildroute.encoders.onnx_run import unit_rows
from mildroute.encoders.tfidf import TfidfEncoder
from mildroute.errors import ArgumentError

__all__ = ["ReducedEncoder"]

_FEWEST_DIRECTIONS = 16


class ReducedEncoder(Encoder):
    """Unit vectors in the directions in which the training vectors vary most (latent semantic analysis).

    Args:
        encoder: What makes the wide vectors; by default :class:`~mildroute.encoders.tfidf.TfidfEncoder`.
        dimensions: Columns that are kept at most; fewer where the training inputs span fewer, and a quarter of their number.
        random_state: Seed of the randomised decomposition; an integer, so that a fit can be repeated.

    Attributes:
        encoder_: The fitted encoder.
        components_: Directions, float32, shape (d, dimensions).

    Example:
        >>> ReducedEncoder(dimensions=2).fit_transform(["what is 2 + 2", "what is 3 + 4", "write a poem"]).shape
        (3, 2)
    """

    encoder_: Any
    components_: NDArray[np.float32]

    def __init__(self, encoder: Any = None, *, dimensions: int = 256, random_state: int = 0) -> None:
        self.encoder = encoder
        self.dimensions = dimensions
        self.random_state = random_state

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float32]:  # noqa: ARG002
        """Learn from n inputs and encode them, shape (n, dimensions)."""
        return self._projected(self._learn(self._read(X)))

    def _read(self, X: Any) -> list[Any]:
        # The encoder inside checks what it reads.
        return as_list(X)

    def _fit(self, rows: list[Any]) -> None:
        self._learn(rows)

    def _learn(self, rows: list[Any]) -> Any:
        if self.dimensions < 1:
            raise ArgumentError(f"dimensions must be at least 1, got {self.dimensions}.")
        self.encoder_ = TfidfEncoder() if self.encoder is None else clone(self.encoder)
        vectors = self.encoder_.fit_transform(rows)
        # More directions than that describe single rows. At 500 rows a router saves .349 on 128 directions and .329 on 256 (12 draws,
        # standard error .017 each): no significant difference, and half the time.
        count = min(self.dimensions, max(_FEWEST_DIRECTIONS, len(rows) // 4), *vectors.shape)
        # One thread: on several, sums are rounded otherwise, and a router's search may then end elsewhere.
        with threadpool_limits(limits=1):
            _, _, directions = randomized_svd(vectors, count, random_state=self.random_state)
        self.components_ = np.ascontiguousarray(directions.T, dtype=np.float32)
        return vectors

    def _encode(self, rows: list[Any]) -> NDArray[np.float32]:
        return self._projected(self.encoder_.transform(rows))

    def _projected(self, vectors: Any) -> NDArray[np.float32]:
        return unit_rows(np.asarray(vectors @ self.components_))
