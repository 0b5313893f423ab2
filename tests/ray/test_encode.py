"""Actors encode as one process does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mildroute import TextRouter
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.persistence import save_router
from mildroute.ray import encode_dataset
from mildroute.routers.regression import RegressionRouter

data = pytest.importorskip("ray.data")


def test_vectors_are_those_of_the_encoder_in_one_process(tmp_path: Path) -> None:
    texts = [f"sing {row}" if row % 2 else f"what is the sum of {row} and 3" for row in range(300)]
    costs = [[0.0, 1.0], [1.0, 0.0]] * 150
    router = TextRouter(encoder=ReducedEncoder(n_components=12), router=RegressionRouter())
    save_router(router.fit(texts, costs), tmp_path / "router")
    parts = [
        pa.table({"row": list(range(part, 300, 3)), "input": texts[part::3]}) for part in range(3)
    ]
    encoded = encode_dataset(data.from_arrow(parts), tmp_path / "router")
    encoded.write_parquet(str(tmp_path / "vectors"))
    found = pq.read_table(tmp_path / "vectors").sort_by("row")
    assert found.column("input").to_pylist() == texts
    vectors = found.column("vector").combine_chunks().flatten().to_numpy().reshape(300, 12)
    np.testing.assert_allclose(vectors, router.encoder_.transform(texts), rtol=1e-5, atol=1e-6)
