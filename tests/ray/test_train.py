"""A router trained on Ray costs what the ordinary router costs, and is stored like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, TableError
from mildroute.persistence import load_router, save_router
from mildroute.ray import train_router
from mildroute.routers.mild import MildRouter

data = pytest.importorskip("ray.data")

EXPERTS = ("small", "middle", "large")


def table_of(vectors: NDArray[np.float32], costs: NDArray[np.float64]) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    scores = {f"score:{name}": 1 - costs[:, index] for index, name in enumerate(EXPERTS)}
    return pa.table({"vector": column, **scores})


def corners(rows: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return vectors and costs: the first expert is good everywhere, the others in a corner."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(rows, 8)) * np.linspace(0.2, 3.0, 8) + 1.0
    chances = np.stack(
        [np.full(rows, 0.2), 0.1 + 0.6 * (vectors[:, 0] > 0.9), 0.1 + 0.6 * (vectors[:, 1] < 1.5)],
        axis=1,
    )
    return vectors.astype(np.float32), (random.random((rows, 3)) < chances).astype(np.float64)


def test_a_linear_router_costs_what_the_ordinary_one_costs(tmp_path: Path) -> None:
    vectors, costs = corners(6000, 0)
    parts = [table_of(vectors[part::3], costs[part::3]) for part in range(3)]
    trained = train_router(
        data.from_arrow(parts), margins="theory", alpha=1e-3, epochs=3, batch_size=64
    )
    ordinary = MildRouter(reward="gap", margins="theory", alpha=1e-3, features="raw")
    ordinary.fit(vectors, costs)
    np.testing.assert_allclose(trained.margins_, ordinary.margins_)
    new_vectors, new_costs = corners(20_000, 1)
    assert trained.score(new_vectors, new_costs) == pytest.approx(
        ordinary.score(new_vectors, new_costs), abs=0.005
    )
    assert tuple(trained.experts_) == EXPERTS
    save_router(trained, tmp_path / "router")
    np.testing.assert_array_equal(
        load_router(tmp_path / "router").predict_proba(new_vectors[:9]),
        trained.predict_proba(new_vectors[:9]),
    )


def test_a_network_learns_what_is_not_linear_and_is_stored(tmp_path: Path) -> None:
    # The first expert is right where two coordinates have one sign, the second elsewhere.
    vectors = np.random.default_rng(0).normal(size=(4000, 4)).astype(np.float32)
    is_same = vectors[:, 0] * vectors[:, 1] > 0
    costs = np.stack([~is_same, is_same, np.ones(4000, dtype=bool)], axis=1).astype(np.float64)
    trained = train_router(
        data.from_arrow(table_of(vectors, costs)),
        hidden_layer_sizes=(16,),
        epochs=4,
        batch_size=25,
        workers=1,
    )
    assert -trained.score(vectors, costs) < 0.08
    save_router(trained, tmp_path / "router")
    np.testing.assert_array_equal(
        load_router(tmp_path / "router").predict(vectors), trained.predict(vectors)
    )


@pytest.mark.parametrize(
    ("columns", "options", "error", "message"),
    [
        (["score:small", "score:middle"], {}, TableError, "must have a column 'vector'"),
        (["vector", "score:small"], {}, TableError, "at least two experts"),
        (None, {"price_weight": 1.0}, TableError, "with a price weight"),
        (None, {"reward": "complement"}, ArgumentError, "reward must be gap or sum"),
    ],
)
def test_datasets_and_settings_that_cannot_be_trained_are_refused(
    columns: list[str] | None,
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    table = table_of(*corners(10, 0))
    with pytest.raises(error, match=message):
        train_router(data.from_arrow(table.select(columns or table.column_names)), **options)
