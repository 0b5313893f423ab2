"""Conversion of images in any common form to Pillow RGB images."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np

from mildroute._optional import needs_extra
from mildroute.encoders.inputs import as_list
from mildroute.exceptions import ArgumentError

__all__ = ["as_images", "load_pillow"]

# Supported formats; untrusted bytes never reach Pillow's rarer readers.
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")


def load_pillow() -> Any:
    """Return Pillow's image module, or raise an error that says how to install it."""
    with needs_extra("pillow", extra="image", user="an image encoder"):
        return importlib.import_module("PIL.Image")


def as_images(inputs: Any) -> list[Any]:
    """Return the rows as Pillow RGB images.

    Args:
        inputs: n images: Pillow images, bytes of image files, or uint8 arrays of shape (height,
            width) or (height, width, 3 or 4).
    """
    rows = (
        list(inputs)
        if isinstance(inputs, np.ndarray) and inputs.ndim in (3, 4)
        else as_list(inputs)
    )
    return [_as_image(row, index) for index, row in enumerate(rows)]


def _as_image(row: Any, index: int) -> Any:
    pillow = load_pillow()
    if isinstance(row, pillow.Image):
        return row.convert("RGB")
    if isinstance(row, bytes):
        try:
            with pillow.open(io.BytesIO(row), formats=_FORMATS) as image:
                return image.convert("RGB")
        except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError) as error:
            raise ArgumentError(
                f"bytes must be an image file in one of {', '.join(_FORMATS)}, got in row {index}:"
                f" {error}."
            ) from error
    if isinstance(row, np.ndarray):
        is_image = (
            row.dtype == np.uint8
            and row.size
            and (row.ndim == 2 or (row.ndim == 3 and row.shape[2] in (3, 4)))
        )
        if not is_image:
            raise ArgumentError(
                "an array must be uint8 of shape (height, width) or (height, width, 3 or 4), got"
                f" {row.dtype} of {row.shape} in row {index}; convert it."
            )
        return pillow.fromarray(row).convert("RGB")
    raise ArgumentError(
        f"every input must be an image, got {type(row).__name__} in row {index}; pass a Pillow"
        " image, bytes or an array."
    )
