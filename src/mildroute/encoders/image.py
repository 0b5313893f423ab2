"""The image encoder: photographs to the vectors of a pretrained network."""

from __future__ import annotations

import importlib
import io
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import needs_extra
from mildroute.encoders.base import Encoder, as_list
from mildroute.encoders.onnx_export import export_image_model, find_model, prepared
from mildroute.encoders.onnx_runtime import open_session, unit_rows
from mildroute.exceptions import ArgumentError

__all__ = [
    "ImageEncoder",
    "as_images",
    "color_histogram",
    "edge_histogram",
    "load_pillow",
    "plain_features",
]


# Images as users hold them, brought to RGB and checked once.


# Files that are opened; Pillow's rarer readers never see untrusted bytes.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")


def load_pillow() -> Any:
    """Pillow's image module, or an error that says how to install it."""
    with needs_extra("pillow", extra="image", user="an image encoder"):
        return importlib.import_module("PIL.Image")


def as_images(inputs: Any) -> list[Any]:
    """Return the rows as RGB images of Pillow.

    Args:
        inputs: n images: of Pillow, bytes of a file, or uint8 arrays of shape (height, width) or
            (height, width, 3 or 4).
    """
    rows = (
        list(inputs)
        if isinstance(inputs, np.ndarray) and inputs.ndim in (3, 4)
        else as_list(inputs)
    )
    return [_as_image(row, place) for place, row in enumerate(rows)]


def _as_image(row: Any, place: int) -> Any:
    pillow = load_pillow()
    if isinstance(row, pillow.Image):
        return row.convert("RGB")
    if isinstance(row, bytes):
        try:
            with pillow.open(io.BytesIO(row), formats=_FORMATS) as image:
                return image.convert("RGB")
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as broken:
            raise ArgumentError(
                f"bytes must be an image file of {', '.join(_FORMATS)}, got in row {place}:"
                f" {broken}."
            ) from broken
    if isinstance(row, np.ndarray):
        wanted = "(height, width) or (height, width, 3 or 4)"
        is_image = (
            row.dtype == np.uint8
            and row.size
            and (row.ndim == 2 or (row.ndim == 3 and row.shape[2] in (3, 4)))
        )
        if not is_image:
            raise ArgumentError(
                f"an array must be uint8 of shape {wanted}, got {row.dtype} of {row.shape} in row"
                f" {place}; convert it."
            )
        return pillow.fromarray(row).convert("RGB")
    raise ArgumentError(
        f"every input must be an image, got {type(row).__name__} in row {place}; pass an image of"
        " Pillow, bytes or an array."
    )


# Plain image features without a model: small pixels, colors and edges.


_SIDE, _SMALL, _BINS, _DIRECTIONS, _CELLS = 32, 8, 8, 8, 4


def plain_features(image: Any) -> NDArray[np.float32]:
    """Pixels at 8 x 8, a histogram of each color and one of edge directions in 4 x 4 cells.

    Returns:
        Shape (344,), each of the three parts of length at most 1.
    """
    bilinear = load_pillow().Resampling.BILINEAR
    pixels = np.asarray(image.resize((_SIDE, _SIDE), bilinear), dtype=np.float64) / 255
    small = np.asarray(image.resize((_SMALL, _SMALL), bilinear), dtype=np.float64).ravel() / 255
    parts = [
        small / np.sqrt(small.size),
        color_histogram(pixels),
        edge_histogram(pixels.mean(axis=2)),
    ]
    return np.concatenate(parts).astype(np.float32)


def color_histogram(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of pixels in 8 steps of each of the three colors, shape (24,)."""
    steps = np.minimum((pixels.reshape(-1, 3) * _BINS).astype(int), _BINS - 1)
    counts = np.stack([np.bincount(steps[:, color], minlength=_BINS) for color in range(3)])
    return np.asarray(counts.ravel() / (len(steps) * np.sqrt(3)), dtype=np.float64)


def edge_histogram(grey: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the strength of edges by direction in each cell of a square gray image.

    The vector has shape (128,), and length 1 where there is an edge.
    """
    down, right = np.gradient(grey)
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _DIRECTIONS).astype(int), _DIRECTIONS - 1)
    line = np.arange(len(grey)) * _CELLS // len(grey)
    place = (line[:, None] * _CELLS + line) * _DIRECTIONS + direction
    counts = np.bincount(
        place.ravel(), weights=strength.ravel(), minlength=_CELLS * _CELLS * _DIRECTIONS
    )
    length = float(np.linalg.norm(counts))
    return counts / max(length, 1e-12)


# Image vectors: by a Hugging Face model exported to ONNX, or plain features with no model at all.


class ImageEncoder(Encoder):
    """Vectors of images.

    Without a model: small pixels, a color histogram and an edge histogram, nothing to download.
    With one: unit vectors, the mean over the places or tokens of the last layer. As with
    :class:`~mildroute.encoders.sentence.SentenceEncoder` the model is exported once and lies
    in the fitted attributes.

    Args:
        model: None, a local folder, or a name on the Hugging Face hub (which is then downloaded).
        batch_size: Images of one run of the model.
        threads: Threads of one run; none leaves it to onnxruntime.

    Attributes:
        onnx_: The exported model, uint8, shape (bytes,), or ``None``.
        preparation_: How an image is resized, cropped and scaled for the model, or ``None``.

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
            pixels = np.stack(
                [prepared(row, self.preparation_) for row in rows[start : start + self.batch_size]]
            )
            parts.append(self._session.run(None, {"pixels": pixels})[0])
        return unit_rows(np.concatenate(parts))
