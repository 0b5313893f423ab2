"""A router for a loss of one's own.

What it learns, what it refuses, and what its artifact needs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest
from mildroute.routers.surrogate import CrossEntropyRouter, CustomLossRouter, TDEFRouter
from tests.support.routers import problem

X, COSTS = problem(3)
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2, len(X))


def expected_cost(scores: Any, costs: Any) -> Any:
    return (scores.softmax(dim=1) * costs).sum(dim=1)


@pytest.mark.parametrize(
    ("name", "reference"), [("tdef", TDEFRouter), ("cross-entropy", CrossEntropyRouter)]
)
def test_our_losses_by_name_give_the_routers_that_have_them_built_in(
    name: str, reference: Any
) -> None:
    ours = CustomLossRouter(name, random_state=0).fit(X, COSTS, sample_weight=WEIGHTS)
    theirs = reference(random_state=0).fit(X, COSTS, sample_weight=WEIGHTS)
    assert ours.alpha_ == theirs.alpha_
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)


def test_a_function_is_as_good_as_a_name() -> None:
    router = CustomLossRouter(expected_cost, alpha=0.001).fit(X, COSTS)
    assert router.score(X, COSTS) > -COSTS.mean(axis=0).min()
    assert router.gradient_norm_ < 1e-4


def test_the_unit_of_the_costs_does_not_matter() -> None:
    dollars, cents = (CustomLossRouter("gap", alpha=0.01).fit(X, unit * COSTS) for unit in (1, 100))
    np.testing.assert_allclose(dollars.weights_, cents.weights_, rtol=1e-3, atol=1e-5)


def test_a_loss_may_look_at_all_rows_at_once() -> None:
    seen = []

    def balanced(scores: Any, costs: Any) -> Any:
        seen.append(tuple(costs.shape))
        wins = torch.nn.functional.one_hot(costs.argmin(dim=1), costs.shape[1]).to(scores)
        return -(wins / wins.sum(dim=0).clamp_min(1) * scores.log_softmax(dim=1)).sum(dim=1)

    CustomLossRouter(balanced, alpha=0.01).fit(X, COSTS)
    assert set(seen) == {COSTS.shape}


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (
            lambda scores, costs: expected_cost(scores, costs).mean(),
            r"returns Tensor of shape \(\)",
        ),
        (
            lambda scores, _: scores,
            r"must return a tensor of shape \(80,\).*returns Tensor of shape \(80, 3\)",
        ),
        (lambda _, costs: costs.sum(dim=1), "that does not depend on the scores"),
        (lambda *_: None, "returns NoneType"),
        (lambda scores, _: scores[:, 0] / 0, "a loss must be finite"),
        ("vibes", "one of cross-entropy, gap, tdef.*'vibes'"),
        (3, "must be a function of scores and costs"),
    ],
)
def test_what_is_no_loss_is_refused_in_words(loss: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        CustomLossRouter(loss, alpha=0.01).fit(X, COSTS)


def test_a_function_is_not_stored_and_the_way_out_is_said(tmp_path: Path) -> None:
    with pytest.raises(
        ArtifactError,
        match=r"router\.loss must not be a function, got expected_cost.*mildroute\.losses",
    ):
        save_router(CustomLossRouter(expected_cost, alpha=0.01).fit(X, COSTS), tmp_path / "router")


def test_a_stored_router_names_its_loss_and_predicts_without_torch(tmp_path: Path) -> None:
    router = CustomLossRouter("gap", alpha=0.01).fit(X, COSTS)
    folder = save_router(router, tmp_path / "router")
    assert read_manifest(folder)["loss"] == "gap"
    assert "| Loss | gap |" in (folder / "CARD.md").read_text()
    answer = f"load_router({str(folder)!r}).predict({X[:4].tolist()})"
    code = (
        f"import sys\nfrom mildroute.persistence import load_router\nprint({answer}, 'torch' in"
        " sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"{router.predict(X[:4])} False"


def test_a_router_whose_loss_is_not_installed_predicts_and_is_not_fitted(tmp_path: Path) -> None:
    router = CustomLossRouter("gap", alpha=0.01).fit(X, COSTS)
    router.loss = "of a plug-in that was removed"
    again: Any = load_router(save_router(router, tmp_path / "router"))
    np.testing.assert_array_equal(again.predict(X), router.predict(X))
    with pytest.raises(ArgumentError, match="got 'of a plug-in that was removed'"):
        again.fit(X, COSTS)
