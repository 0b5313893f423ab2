"""Plain image features without a model: small pixels, colors and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_inputs import load_pillow

__all__ = ["color_histogram", "edge_histogram", "plain_features"]

# Sides of the scaled images, in pixels.
_SIDE = 32
_SMALL_SIDE = 8
# Steps of each color, directions of edges, and cells along each side.
_BINS = 8
_DIRECTIONS = 8
_CELLS = 4


def plain_features(image: Any) -> NDArray[np.float32]:
    """Return small pixels, a histogram of each color, and one of edge directions in 4 x 4 cells.

    Returns:
        Shape (344,), each of the three parts of length at most 1.
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
    """Return the share of pixels in 8 steps of each of the three colors, shape (24,)."""
    steps = np.minimum((pixels.reshape(-1, 3) * _BINS).astype(int), _BINS - 1)
    counts = np.stack([np.bincount(steps[:, color], minlength=_BINS) for color in range(3)])
    return np.asarray(counts.ravel() / (len(steps) * np.sqrt(3)), dtype=np.float64)


def edge_histogram(gray: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the strength of edges by direction in each cell of a square gray image.

    The vector has shape (128,), and length 1 if there is any edge.
    """
    down, right = np.gradient(gray)
    strength = np.hypot(down, right)
    angle = np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _DIRECTIONS).astype(int), _DIRECTIONS - 1)
    line = np.arange(len(gray)) * _CELLS // len(gray)
    index = (line[:, None] * _CELLS + line) * _DIRECTIONS + direction
    counts = np.bincount(
        index.ravel(), weights=strength.ravel(), minlength=_CELLS * _CELLS * _DIRECTIONS
    )
    length = float(np.linalg.norm(counts))
    return counts / max(length, 1e-12)
