"""What a stored router says of its training data and of held-out rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from mildroute._hashing import hash_of_data
from mildroute.persistence import save_router
from mildroute.persistence.artifact import read_manifest
from mildroute.routers._held_out_metrics import held_out_metrics
from mildroute.routers.baselines import BestSingleRouter
from mildroute.routers.frontier.router import FrontierRouter
from mildroute.routers.mild import MildRouter
from tests.support.routers import problem

X, COSTS = problem(3)


def test_metrics_and_their_intervals_are_those_of_the_definition() -> None:
    """Paid 0, 0, 1, 1: mean .5, standard error .25.

    The single expert pays .5 more on average, with no spread.
    """
    paid = np.array([0.0, 0.0, 1.0, 1.0])
    found = held_out_metrics(paid, paid + 0.5, np.array([[0.0, 2.0]] * 4), None)
    assert found["mean cost"] == pytest.approx(
        {"value": 0.5, "low": 0.5 - 0.48999, "high": 0.5 + 0.48999}, abs=1e-4
    )
    assert found["saved against the best single expert"] == pytest.approx(
        {"value": 0.5, "low": 0.5, "high": 0.5}
    )
    assert found["mean cost of the oracle"]["value"] == 0


def test_the_hash_sees_every_change_and_no_difference_of_form() -> None:
    first = hash_of_data(X, COSTS)
    assert first == hash_of_data(sparse.csr_array(X), COSTS.copy(order="F"))
    assert (
        len(
            {
                first,
                hash_of_data(X[::-1], COSTS),
                hash_of_data(X, COSTS + 1),
                hash_of_data(X * 2, COSTS),
            }
        )
        == 4
    )


def test_the_card_of_a_searched_router_has_rows_hash_and_held_out_metrics(tmp_path: Path) -> None:
    router = MildRouter(random_state=0).fit(X, COSTS)
    manifest = read_manifest(save_router(router, tmp_path / "router"))
    assert (manifest["rows"], manifest["data_hash"]) == (80, hash_of_data(X, COSTS))
    assert manifest["metrics"]["mean cost"]["low"] < manifest["metrics"]["mean cost"]["value"]
    card = (tmp_path / "router" / "CARD.md").read_text()
    assert "saved against the best single expert" in card
    assert "without validation metrics" not in card


def test_a_router_without_a_search_has_no_metrics_but_its_data(tmp_path: Path) -> None:
    manifest = read_manifest(save_router(BestSingleRouter().fit(X, COSTS), tmp_path / "router"))
    assert manifest["metrics"] is None
    assert manifest["rows"] == 80


def test_a_frontier_tells_of_the_operating_point_in_use() -> None:
    router = FrontierRouter(price_weights=(0, 1, 100)).fit(
        X, COSTS, prices=np.array([0.001, 0.01, 0.1])
    )
    dear = router.validation_["dollars per 1,000 queries"]
    router.price_weight = 100.0
    cheap = router.validation_["dollars per 1,000 queries"]
    assert cheap["value"] < dear["value"]
    assert dear["low"] < dear["value"] < dear["high"]
