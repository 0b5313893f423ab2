"""The base class of encoders."""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mildroute.encoders.inputs import as_texts

__all__ = ["Encoder"]


class Encoder(TransformerMixin, BaseEstimator):
    """A scikit-learn transformer that turns inputs into vectors.

    An encoder implements ``_fit(rows)`` and ``_encode(rows)``, which returns float32 vectors, dense
    or as a CSR matrix, shape (n, d). Everything that ``_encode`` needs is a plain fitted attribute,
    so that an artifact can hold it. Attributes listed in ``_transient`` are built from these for
    speed, and are neither stored nor pickled.

    Example:
        >>> import numpy as np
        >>> class Length(Encoder):
        ...     def _fit(self, rows):
        ...         self.longest_ = max(map(len, rows))
        ...     def _encode(self, rows):
        ...         return np.array([[len(row) / self.longest_] for row in rows], dtype=np.float32)
        >>> Length().fit_transform(["ab", "a"])
        array([[1. ],
               [0.5]], dtype=float32)
    """

    _transient: ClassVar[tuple[str, ...]] = ()
    # Whether an encoder's vectors of its training rows differ from its vectors of new rows. If so,
    # a router is cross-validated with one encoder per fold.
    learns_from_rows: ClassVar[bool] = True

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002
        """Fit the encoder on n inputs; ``y`` is ignored."""
        self._forget()
        self._fit(self._read(X))
        return self

    def transform(self, X: Any) -> Any:
        """Return the vectors of n inputs, float32, shape (n, d)."""
        check_is_fitted(self)
        return self._encode(self._read(X))

    def _read(self, X: Any) -> list[Any]:
        return list(as_texts(X))

    def _fit(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def _encode(self, rows: list[Any]) -> Any:
        raise NotImplementedError

    def _forget(self) -> None:
        for name in self._transient:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without transient attributes, such as sessions."""
        return {
            name: value
            for name, value in super().__getstate__().items()
            if name not in self._transient
        }

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: an encoder takes one column of inputs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        return tags
