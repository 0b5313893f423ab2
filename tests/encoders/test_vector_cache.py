"""The cache on disk."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from mildroute.encoders.vector_cache import VectorCache


def vectors(*values: float) -> np.ndarray:
    return np.array([[value, -value] for value in values], dtype=np.float32)


def test_what_was_written_is_read_by_another_instance(tmp_path: Path) -> None:
    VectorCache(tmp_path, "model").write(["a", "b"], vectors(1, 2))
    rows, found = VectorCache(tmp_path, "model").read(["x", "b", "a", "b"])
    assert dict(zip(rows.tolist(), found.tolist(), strict=True)) == {
        1: [2, -2],
        2: [1, -1],
        3: [2, -2],
    }


def test_an_instance_sees_what_others_write_later(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model")
    assert len(cache.read(["a"])[0]) == 0
    VectorCache(tmp_path, "model").write(["a"], vectors(1))
    assert cache.read(["a"])[1].tolist() == [[1, -1]]


def test_models_do_not_see_each_others_vectors(tmp_path: Path) -> None:
    VectorCache(tmp_path, "one").write(["a"], vectors(1))
    assert len(VectorCache(tmp_path, "two").read(["a"])[0]) == 0


def test_a_damaged_or_vanished_segment_counts_as_absent(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, "model")
    cache.write(["a"], vectors(1))
    cache.write(["b"], vectors(2))
    assert len(cache.read(["a", "b"])[0]) == 2
    one, two = sorted(tmp_path.rglob("*.safetensors"))
    one.write_bytes(b"junk")
    two.unlink()
    assert len(cache.read(["a", "b"])[0]) == 0
    assert len(VectorCache(tmp_path, "model").read(["a", "b"])[0]) == 0


def test_many_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    def write(worker: int) -> None:
        cache = VectorCache(tmp_path, "model")
        for step in range(10):
            cache.write([f"{worker} {step}", "shared"], vectors(worker, 7))

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"{worker} {step}" for worker in range(8) for step in range(10)]
    rows, found = VectorCache(tmp_path, "model").read([*names, "shared"])
    assert sorted(rows.tolist()) == list(range(81))
    assert found[np.argsort(rows), 0].tolist() == [*np.repeat(np.arange(8), 10), 7]
    assert not list(tmp_path.rglob("*.partial"))
