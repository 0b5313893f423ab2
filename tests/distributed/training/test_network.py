"""A network from shards learns what a linear router cannot, and goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.distributed.statistics import LinearConfig, MLPConfig
from mildroute.distributed.training import train
from mildroute.persistence import load_router, save_router
from tests.distributed.training.problems import write

PLAN = MLPConfig(hidden_layer_sizes=(16,), epochs=8, batch_size=64, learning_rate=0.01)


def crossed(count: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    """The first expert is right where two coordinates have the same sign, the second elsewhere, the
    third never.
    """
    vectors = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float16)
    same = vectors[:, 0] * vectors[:, 1] > 0
    return vectors, np.stack([~same, same, np.ones(count, dtype=bool)], axis=1).astype(float)


def test_it_learns_what_is_not_linear(tmp_path: Path) -> None:
    vectors, costs = crossed()
    shards = write(tmp_path / "shards", vectors, costs)
    found = train(shards, PLAN)
    assert (
        found.objective < 0.08 < 0.4 < -train(shards, LinearConfig()).router.score(vectors, costs)
    )
    assert -found.router.score(vectors, costs) == pytest.approx(found.objective, abs=0.03)
    save_router(found.router, tmp_path / "router")
    np.testing.assert_array_equal(
        load_router(tmp_path / "router").predict(vectors), found.router.predict(vectors)
    )


def test_the_best_epoch_is_kept_and_a_stopped_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    vectors, costs = crossed(2000)
    shards, seen = write(tmp_path / "shards", vectors, costs), []
    whole = train(shards, PLAN, progress=seen.append)
    assert whole.objective == min(figures["held_out"] for figures in seen)

    def stop(figures: dict[str, float]) -> None:
        if figures["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(shards, PLAN, storage=str(tmp_path), name="run", progress=stop)
    rest = train(shards, PLAN, storage=str(tmp_path), name="run")
    assert rest.objective == whole.objective
    np.testing.assert_allclose(rest.router.layers_[0], whole.router.layers_[0], rtol=1e-6)
