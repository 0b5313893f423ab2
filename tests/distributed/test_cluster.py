"""Over Ray, on one node and on several, cells give the same bits as in one process."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paper.toys import toy_cell, toy_cells

from benchmarks.paper.config import ExperimentConfig
from benchmarks.paper.run import Store, run_cell, run_cells
from mildroute.distributed.cluster import connected, load_ray, on_cluster
from mildroute.exceptions import ArgumentError, MissingExtraError

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::FutureWarning",
)
CELLS = 8


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILDROUTE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture
def two_nodes() -> Iterator[Any]:
    """Two nodes with one processor each, and this process connected to them."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
def test_a_local_ray_gives_the_same_bits_as_one_process(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    stores = [Store(tmp_path / name) for name in ("here", "ray")]
    cells = toy_cells(CELLS)
    run_cells(cells, stores[0])
    assert run_cells(cells, stores[1], workers=2, ray=True) == CELLS
    assert not ray.is_initialized()
    assert stores[0].read() == stores[1].read()


@pytest.mark.slow
def test_several_nodes_share_the_work_and_give_the_same_bits(
    two_nodes: Any, tmp_path: Path
) -> None:
    def node_of(cell: ExperimentConfig) -> str:
        run_cell(cell)
        return str(load_ray().get_runtime_context().get_node_id())

    cells, stores = toy_cells(6), [Store(tmp_path / name) for name in ("here", "ray")]
    for store, ray in zip(stores, (False, True), strict=True):
        run_cells(cells, store, ray=ray)
    assert two_nodes.is_initialized()
    assert stores[0].read() == stores[1].read()
    assert (
        len(set(on_cluster(node_of, [(toy_cell("mildroute", seed),) for seed in range(12)]))) == 2
    )
    with pytest.raises(ArgumentError, match="no such method"):
        run_cells([toy_cell("no such method")], stores[1], ray=True)


def test_without_ray_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[ray\]"), connected():
        pass
