"""Image vectors: by a Hugging Face model exported to ONNX, or plain features with no model at all."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.base import Encoder
from mildroute.encoders.image_export import export_image_model, prepared
from mildroute.encoders.image_features import plain_features
from mildroute.encoders.image_inputs import as_images
from mildroute.encoders.onnx_export import find_model
from mildroute.encoders.onnx_run import open_session, unit_rows

__all__ = ["ImageEncoder"]


class ImageEncoder(Encoder):
    """Vectors of images.

    Without a model: small pixels, a colour histogram and an edge histogram, nothing to download. With one: unit vectors, the mean over the
    places or tokens of the last layer. As with :class:`~mildroute.encoders.sentence.SentenceEncoder` the model is exported once and lies
    in the fitted attributes.

    Args:
        model: None, a local folder, or a name on the Hugging Face hub (which is then downloaded).
        batch_size: Images of one run of the model.
        threads: Threads of one run; none leaves it to onnxruntime.

    Attributes:
        onnx_: The exported model, uint8, shape (bytes,), or none.
        preparation_: How an image is resized, cropped and scaled for the model, or none.

    Example:
        >>> ImageEncoder().fit_transform(np.zeros((2, 9, 9, 3), np.uint8)).shape
        (2, 344)
    """

    _scratch: ClassVar[tuple[str, ...]] = ("_session",)
    learns_from_rows: ClassVar[bool] = False
    onnx_: NDArray[np.uint8] | None

    def __init__(self, model: str | None = None, *, batch_size: int = 16, threads: int | None = None) -> None:
        self.model = model
        self.batch_size = batch_size
        self.threads = threads

    def _read(self, X: Any) -> list[Any]:
        return as_images(X)

    def _fit(self, rows: list[Any]) -> None:  # noqa: ARG002
        exported = None if self.model is None else export_image_model(find_model(self.model))
        self.onnx_ = None if exported is None else exported.onnx
        self.preparation_ = None if exported is None else exported.preparation

    def _encode(self, rows: list[Any]) -> NDArray[np.float32]:
        if self.onnx_ is None or self.preparation_ is None:
            return np.stack([plain_features(row) for row in rows])
        if not hasattr(self, "_session"):
            self._session = open_session(self.onnx_, self.threads)
        parts = []
        for start in range(0, len(rows), self.batch_size):
            pixels = np.stack([prepared(row, self.preparation_) for row in rows[start : start + self.batch_size]])
            parts.append(self._session.run(None, {"pixels": pixels})[0])
        return unit_rows(np.concatenate(parts))
