"""Images as users hold them, brought to RGB and checked once."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np

from mildroute.encoders.inputs import as_list
from mildroute.errors import ArgumentError, MissingExtraError

__all__ = ["as_images", "load_pillow"]

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
"""Files that are opened; Pillow's rarer readers see no bytes of strangers."""


def load_pillow() -> Any:
    """Pillow's image module, or an error that says how to install it.

    Example:
        >>> load_pillow().__name__
        'PIL.Image'
    """
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package("pillow", extra="image", user="an image encoder") from missing


def as_images(inputs: Any) -> list[Any]:
    """The rows as RGB images of Pillow.

    Args:
        inputs: n images: of Pillow, bytes of a file, or uint8 arrays of shape (height, width) or (height, width, 3 or 4).

    Returns:
        A list of n images.

    Example:
        >>> as_images([np.zeros((2, 3), np.uint8)])[0].size
        (3, 2)
        >>> as_images(["a text"])
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: every input must be an image, got str in row 0; pass an image of Pillow, bytes or an array.
    """
    rows = list(inputs) if isinstance(inputs, np.ndarray) and inputs.ndim in (3, 4) else as_list(inputs)
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
            raise ArgumentError(f"bytes must be an image file of {', '.join(_FORMATS)}, got in row {place}: {broken}.") from broken
    if isinstance(row, np.ndarray):
        wanted = "(height, width) or (height, width, 3 or 4)"
        is_image = row.dtype == np.uint8 and row.size and (row.ndim == 2 or (row.ndim == 3 and row.shape[2] in (3, 4)))
        if not is_image:
            raise ArgumentError(f"an array must be uint8 of shape {wanted}, got {row.dtype} of {row.shape} in row {place}; convert it.")
        return pillow.fromarray(row).convert("RGB")
    raise ArgumentError(
        f"every input must be an image, got {type(row).__name__} in row {place}; pass an image of Pillow, bytes or an array."
    )
