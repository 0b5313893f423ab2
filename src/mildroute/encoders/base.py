"""What every encoder shares: a scikit-learn transformer that reads inputs, checks them once and leaves scratch behind."""

from __future__ import annotations

from typing import Any, ClassVar

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from mildroute.encoders.inputs import as_texts

__all__ = ["Encoder"]


class Encoder(TransformerMixin, BaseEstimator):
    """Makes vectors of inputs.

    An encoder implements ``_fit(rows)`` and ``_encode(rows)``, which returns float32 vectors, dense or as a CSR matrix, shape (n, d).
    What ``_encode`` needs lies in plain fitted attributes, so that an artifact can carry it; what it builds from those for speed is named
    in ``_scratch``, and is neither stored nor pickled.

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

    _scratch: ClassVar[tuple[str, ...]] = ()
    learns_from_rows: ClassVar[bool] = True
    """Whether vectors of the rows it was fitted on differ from vectors of new rows; a router is then measured with an encoder per fold."""

    def fit(self, X: Any, y: Any = None) -> Any:  # noqa: ARG002
        """Learn from n inputs; ``y`` is ignored."""
        self._forget()
        self._fit(self._read(X))
        return self

    def transform(self, X: Any) -> Any:
        """Vectors of n inputs, float32, shape (n, d)."""
        check_is_fitted(self)
        return self._encode(self._read(X))

    def _read(self, X: Any) -> list[Any]:
        return list(as_texts(X))

    def _fit(self, rows: list[Any]) -> None:
        raise NotImplementedError

    def _encode(self, rows: list[Any]) -> Any:
        raise NotImplementedError

    def _forget(self) -> None:
        for name in self._scratch:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """Sessions and the like stay in this process."""
        return {name: value for name, value in super().__getstate__().items() if name not in self._scratch}

    def __sklearn_tags__(self) -> Any:
        """An encoder takes one column of inputs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags
