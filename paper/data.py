"""The inputs of the experiments: labeled images, and questions with answers of language models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError
from paper.config import Data
from paper.folders import Folders, cached_array
from paper.image_vectors import frozen_vectors, main_directions

__all__ = [
    "IMAGE_SETS",
    "TEXT_SETS",
    "Answers",
    "Labeled",
    "answers_of",
    "labeled_of",
    "raw_inputs",
    "table_file",
]


IMAGE_SETS = ("cifar10", "cifar100", "svhn", "tiny_imagenet")
TEXT_SETS = ("mmlu57", "mmlu_pro", "mmlu_qwen")
# Tables that are not published, and how to collect them.
_TO_COLLECT = {
    "mmlu_qwen": (
        "it holds the answers of Qwen2.5-7B-Instruct, Qwen2.5-1.5B-Instruct and"
        " Qwen2.5-0.5B-Instruct on MMLU, which are not published: collect them with `mildroute"
        " collect`, each question with its subject as group, and set MILDROUTE_DATA to the folder"
    )
}
_TOY_CLASSES, _TOY_WIDTH, _TOY_ROWS = 10, 12, 600


@dataclass(frozen=True)
class Labeled:
    """Labeled inputs, split into training and test rows.

    Args:
        vectors: Shape (n, d); d is 0 for raw inputs.
        labels: Shape (n,).
        is_train: Mask of the training rows, shape (n,).

    Example:
        >>> labeled_of(Data("toy"), Folders("", "")).vectors.shape
        (600, 12)
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.intp]
    is_train: NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Inputs with stored answers of the experts.

    Args:
        vectors: Shape (n, d); d is 0 for raw inputs.
        errors: One minus the score of each expert, shape (n, p).
        rows: Index of each row in the file, shape (n,).

    Example:
        >>> Answers(np.ones((2, 3), np.float32), np.zeros((2, 2)), np.arange(2)).errors.shape
        (2, 2)
    """

    vectors: NDArray[np.float32]
    errors: NDArray[np.float64]
    rows: NDArray[np.intp]


def labeled_of(
    data: Data, folders: Folders, progress: Callable[[int, int], None] | None = None
) -> Labeled:
    """Return labeled inputs by name; vectors of images are cached.

    Args:
        data: Name and size of the data.
        folders: Folders of data and cache.
        progress: Called with the number of images done and their total while vectors are computed.

    Example:
        >>> labeled_of(Data("toy"), Folders("", "")).is_train.sum()
        np.int64(400)
    """
    if data.name == "toy":
        return _toy()
    if data.name not in IMAGE_SETS:
        raise ArgumentError(
            f"labeled data must be toy, {', '.join(IMAGE_SETS)}, got {data.name!r}."
        )
    if data.features == "frozen":
        return _images(data.name, folders, progress)
    return _labels(data.name, folders)


def table_file(name: str, folders: Folders) -> Path:
    """Return the path of the table of a data set; the error of a missing one says how to get it.

    Args:
        name: Name of the data set.
        folders: Folders of data and cache.

    Example:
        >>> table_file("mmlu_qwen", Folders("data", ""))
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: mmlu_qwen.parquet must be in the folder of ...
    """
    if name in _TO_COLLECT:
        return folders.file(f"{name}.parquet", _TO_COLLECT[name])
    return folders.file(f"{name}.parquet")


@lru_cache(maxsize=2)
def answers_of(data: Data, names: tuple[str, ...], folders: Folders) -> Answers:
    """Return the inputs of a table of answers and the errors of some of its experts.

    Args:
        data: The table and its groups.
        names: Names of the experts.
        folders: Folders of data and cache; the sentence vectors are beside the table.

    Example:
        >>> answers_of(Data("toy"), ("a", "b"), Folders("", ""))
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: a table of answers must be mmlu57, ..., got 'toy'.
    """
    if data.name not in TEXT_SETS:
        raise ArgumentError(
            f"a table of answers must be {', '.join(TEXT_SETS)}, got {data.name!r}."
        )
    columns = [f"score:{name}" for name in names]
    table = pq.read_table(table_file(data.name, folders), columns=["group", *columns])
    groups = np.asarray(table["group"].to_pylist(), dtype=str)
    rows = np.flatnonzero(np.isin(groups, data.groups)) if data.groups else np.arange(len(groups))
    frozen = data.features == "frozen"
    vectors = (
        np.load(folders.file(f"{data.name}.minilm.npy"), mmap_mode="r")
        if frozen
        else _no_vectors(len(groups))
    )
    errors = 1 - np.stack(
        [table[column].to_numpy().astype(np.float64) for column in columns], axis=1
    )
    return Answers(vectors[rows].astype(np.float32), errors[rows], rows)


# A dict and not a cache decorator, because the progress must not be part of the key.
_IMAGES: dict[tuple[str, Folders], Labeled] = {}


def _images(name: str, folders: Folders, progress: Callable[[int, int], None] | None) -> Labeled:
    if (name, folders) not in _IMAGES:
        _IMAGES[name, folders] = _read_images(name, folders, progress)
    return _IMAGES[name, folders]


def _read_images(
    name: str, folders: Folders, progress: Callable[[int, int], None] | None
) -> Labeled:
    file = table_file(name, folders)
    table = pq.read_table(file, columns=["split", "label", "image"])
    is_train = np.asarray(table["split"].to_pylist(), dtype=str) == "train"
    wide = frozen_vectors(folders, file, table["image"].to_pylist(), progress)
    digest = hashlib.sha256(wide.tobytes() + is_train.tobytes()).hexdigest()[:32]
    vectors = cached_array(
        folders, f"directions-{digest}", partial(main_directions, wide, is_train)
    )
    return Labeled(vectors, table["label"].to_numpy().astype(np.intp), is_train)


@lru_cache(maxsize=2)
def _labels(name: str, folders: Folders) -> Labeled:
    """Return labels and split without vectors, for a network that reads the images."""
    table = pq.read_table(table_file(name, folders), columns=["split", "label"])
    is_train = np.asarray(table["split"].to_pylist(), dtype=str) == "train"
    return Labeled(_no_vectors(len(is_train)), table["label"].to_numpy().astype(np.intp), is_train)


def _no_vectors(rows: int) -> NDArray[np.float32]:
    return np.empty((rows, 0), dtype=np.float32)


@lru_cache(maxsize=1)
def _toy() -> Labeled:
    """Return ten small overlapping clouds, so that tests need no files."""
    random = np.random.default_rng(0)
    labels = random.integers(_TOY_CLASSES, size=_TOY_ROWS)
    centers = 1.5 * random.normal(size=(_TOY_CLASSES, _TOY_WIDTH))
    vectors = centers[labels] + random.normal(size=(_TOY_ROWS, _TOY_WIDTH))
    return Labeled(vectors.astype(np.float32), labels, np.arange(_TOY_ROWS) < _TOY_ROWS * 2 // 3)


def raw_inputs(name: str, rows: NDArray[np.intp], folders: Folders) -> list[Any]:
    """Return some rows of a data set unchanged.

    Args:
        name: Name of an image set or of a table of answers.
        rows: Indices of the rows, shape (n,).
        folders: Folders of data and cache.

    Returns:
        Bytes of n image files, or n texts.

    Example:
        >>> raw_inputs("toy", np.arange(3), Folders("", ""))
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: raw inputs must be of cifar10, ..., got 'toy'; ...
    """
    if name not in IMAGE_SETS + TEXT_SETS:
        raise ArgumentError(
            f"raw inputs must be of {', '.join(IMAGE_SETS + TEXT_SETS)}, got {name!r}; toy data has"
            " vectors alone."
        )
    column = _column(name, folders)
    return [column[row] for row in rows]


@lru_cache(maxsize=2)
def _column(name: str, folders: Folders) -> list[Any]:
    file = table_file(name, folders)
    # Benchmark files call their texts "text", collected tables "input".
    wanted = ("image",) if name in IMAGE_SETS else ("text", "input")
    columns = [column for column in wanted if column in pq.read_schema(file).names]
    if not columns:
        raise ArgumentError(
            f"{file.name} must have a column {' or '.join(wanted)}, got"
            f" {pq.read_schema(file).names}; write it again."
        )
    return list(pq.read_table(file, columns=columns[:1])[columns[0]].to_pylist())
