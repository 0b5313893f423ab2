"""Plain image features without a model: small pixels, colors and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_inputs import load_pillow

__all__ = ["color_histogram", "edge_histogram", "plain_features"]

# Side lengths of the scaled images, in pixels.
_SIDE = 32
_SMALL_SIDE = 8
# Histogram bins per color.
_BINS = 8
# Edge directions per cell.
_DIRECTIONS = 8
# Cells along each side.
_CELLS = 4


def plain_features(image: Any) -> NDArray[np.float32]:
    """Return small pixels, color histograms, and edge-direction histograms in 4 x 4 cells.

    Returns:
        A vector of shape (344,) whose three parts have norms of at most 1.
    """
    bilinear = load_pillow().Resampling.BILINEAR
    pixels = np.asarray(image.resize((_SIDE, _SIDE), bilinear), dtype=np.float64) / 255
    small = (
        np.asarray(image.resize((_SMALL_SIDE, _SMALL_SIDE), bilinear), dtype=np.float64).ravel()
        / 255
    )
    parts = [
        small / np.sqrt(small.size),
        color_histogram(pixels),
        edge_histogram(pixels.mean(axis=2)),
    ]
    return np.concatenate(parts).astype(np.float32)


def color_histogram(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of pixels in each of 8 bins per color, shape (24,)."""
    bins = np.minimum((pixels.reshape(-1, 3) * _BINS).astype(int), _BINS - 1)
    counts = np.stack([np.bincount(bins[:, color], minlength=_BINS) for color in range(3)])
    return np.asarray(counts.ravel() / (len(bins) * np.sqrt(3)), dtype=np.float64)


def edge_histogram(gray: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edge strength by direction in each cell of a square gray image.

    The vector has shape (128,), and norm 1 if there is any edge.
    """
    down, right = np.gradient(gray)
    strength = np.hypot(down, right)
    angle = np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _DIRECTIONS).astype(int), _DIRECTIONS - 1)
    cell = np.arange(len(gray)) * _CELLS // len(gray)
    index = (cell[:, None] * _CELLS + cell) * _DIRECTIONS + direction
    counts = np.bincount(
        index.ravel(), weights=strength.ravel(), minlength=_CELLS * _CELLS * _DIRECTIONS
    )
    norm = float(np.linalg.norm(counts))
    return counts / max(norm, 1e-12)
