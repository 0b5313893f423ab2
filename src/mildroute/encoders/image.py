"""The image encoder: plain features, or a pretrained network's vectors."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.base import Encoder
from mildroute.encoders.hub_models import find_model
from mildroute.encoders.image_features import plain_features
from mildroute.encoders.image_inputs import as_images
from mildroute.encoders.image_models import export_image_model, prepare_image
from mildroute.encoders.onnx_runtime import open_session, unit_rows

__all__ = ["ImageEncoder"]


class ImageEncoder(Encoder):
    """An encoder of images.

    Without a model, vectors hold small pixels, a color histogram and an edge histogram, and nothing
    is downloaded. With a model, they are the last layer's mean over positions or tokens, of unit
    length. As in :class:`~mildroute.encoders.sentence.SentenceEncoder`, the model is
    exported once and stored in the fitted attributes.

    Args:
        model: A local folder, or a name on the Hugging Face Hub (which is downloaded); None uses no
            model.
        batch_size: Number of images per run of the model.
        threads: Number of threads per run; None lets onnxruntime choose.

    Attributes:
        onnx_: The exported model as uint8, shape (bytes,), or None.
        preparation_: How an image is resized, cropped and scaled for the model, or None.

    Example:
        >>> ImageEncoder().fit_transform(np.zeros((2, 9, 9, 3), np.uint8)).shape
        (2, 344)
    """

    _transient: ClassVar[tuple[str, ...]] = ("_session",)
    learns_from_rows: ClassVar[bool] = False
    onnx_: NDArray[np.uint8] | None

    def __init__(
        self, model: str | None = None, *, batch_size: int = 16, threads: int | None = None
    ) -> None:
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
            batch = rows[start : start + self.batch_size]
            pixels = np.stack([prepare_image(row, self.preparation_) for row in batch])
            parts.append(self._session.run(None, {"pixels": pixels})[0])
        return unit_rows(np.concatenate(parts))
