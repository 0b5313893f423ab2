"""Plain image features without a model: small pixels, colours and edges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_inputs import load_pillow

__all__ = ["colour_histogram", "edge_histogram", "plain_features"]

_SIDE, _SMALL, _BINS, _DIRECTIONS, _CELLS = 32, 8, 8, 8, 4


def plain_features(image: Any) -> NDArray[np.float32]:
    """Pixels at 8 x 8, a histogram of each colour and one of edge directions in 4 x 4 cells.

    Args:
        image: An RGB image of Pillow.

    Returns:
        Shape (344,), each of the three parts of length at most 1.

    Example:
        >>> plain_features(load_pillow().new("RGB", (50, 20))).shape
        (344,)
    """
    bilinear = load_pillow().Resampling.BILINEAR
    pixels = np.asarray(image.resize((_SIDE, _SIDE), bilinear), dtype=np.float64) / 255
    small = np.asarray(image.resize((_SMALL, _SMALL), bilinear), dtype=np.float64).ravel() / 255
    parts = [small / np.sqrt(small.size), colour_histogram(pixels), edge_histogram(pixels.mean(axis=2))]
    return np.concatenate(parts).astype(np.float32)


def colour_histogram(pixels: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of pixels in 8 steps of each of the three colours, shape (24,).

    Example:
        >>> colour_histogram(np.zeros((2, 2, 3)))[:2].round(3)
        array([0.577, 0.   ])
    """
    steps = np.minimum((pixels.reshape(-1, 3) * _BINS).astype(int), _BINS - 1)
    counts = np.stack([np.bincount(steps[:, colour], minlength=_BINS) for colour in range(3)])
    return np.asarray(counts.ravel() / (len(steps) * np.sqrt(3)), dtype=np.float64)


def edge_histogram(grey: NDArray[np.float64]) -> NDArray[np.float64]:
    """Strength of edges by direction in each cell of a square grey image, shape (128,), of length 1 where there is an edge.

    Example:
        >>> edge_histogram(np.eye(32)).shape
        (128,)
    """
    down, right = np.gradient(grey)
    strength, angle = np.hypot(down, right), np.arctan2(down, right) % np.pi
    direction = np.minimum((angle / np.pi * _DIRECTIONS).astype(int), _DIRECTIONS - 1)
    line = np.arange(len(grey)) * _CELLS // len(grey)
    place = (line[:, None] * _CELLS + line) * _DIRECTIONS + direction
    counts = np.bincount(place.ravel(), weights=strength.ravel(), minlength=_CELLS * _CELLS * _DIRECTIONS)
    length = float(np.linalg.norm(counts))
    return counts / max(length, 1e-12)
