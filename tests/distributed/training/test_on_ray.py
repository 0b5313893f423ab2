"""Two Ray workers end where one process ends, and a killed worker does not change the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mildroute.distributed.cluster import connected
from mildroute.distributed.statistics import LinearConfig, MLPConfig
from mildroute.distributed.training import train
from tests.distributed.training.problems import rows, write
from tests.support.processes import kill_a_worker

pytest.importorskip("ray")
# Ray warns of settings of its own.
pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"
)
PLAN = LinearConfig(sample=50, tolerance=1e-8)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(4, store_bytes=200 << 20):
        yield


@pytest.mark.slow
def test_two_workers_reach_the_optimum_of_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = train(write(tmp_path / "shards", *rows()), PLAN)
    monkeypatch.chdir(tmp_path)
    found = train("shards", PLAN, workers=2, storage="runs", name="two")
    assert (tmp_path / "runs" / "two").is_dir()
    assert found.objective == pytest.approx(alone.objective, rel=1e-6)
    assert found.rows == alone.rows == 3000


@pytest.mark.slow
def test_a_killed_worker_comes_back_from_the_checkpoint(tmp_path: Path) -> None:
    shards, killed = write(tmp_path / "shards", *rows()), []
    watcher = threading.Thread(
        target=kill_a_worker,
        args=(tmp_path / "runs", "progress.npz", b"RayTrainWorker", killed),
        daemon=True,
    )
    watcher.start()
    found = train(
        shards,
        LinearConfig(sample=5, tolerance=1e-5),
        workers=2,
        storage=str(tmp_path / "runs"),
        name="killed",
        patience=0,
    )
    watcher.join()
    assert len(killed) == 1
    assert found.objective == pytest.approx(train(shards, PLAN).objective, rel=1e-4)


@pytest.mark.slow
def test_a_network_is_trained_by_two_workers_on_unequal_shares(tmp_path: Path) -> None:
    shards = write(tmp_path / "shards", *rows(2000), files=3, group=1000)
    plan = MLPConfig(hidden_layer_sizes=(8,), epochs=3, batch_size=50, learning_rate=0.01)
    found = train(shards, plan, workers=2, storage=str(tmp_path / "runs"), name="net")
    assert found.objective == pytest.approx(train(shards, plan).objective, abs=0.05)
