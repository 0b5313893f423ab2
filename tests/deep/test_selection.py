"""Reward and margins by held-out deferral loss.

What is tried, what is taken, and what a given choice saves.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deep.networks import TEXTS, tiny_router
from mildroute.deep import fine_tune as fitting
from mildroute.deep.config import DeferralConfig, config_of
from mildroute.deep.router import DeepRouter
from mildroute.deep.selection import Objective, objectives_of, select
from mildroute.exceptions import ArgumentError
from mildroute.persistence import load_router, save_router
from mildroute.persistence.artifact import read_manifest

# Costs on which no two of the rewards say the same.
COSTS = np.array([[0.0, 1.0, 0.8], [1.0, 0.0, 0.8], [0.2, 0.2, 0.3], [1.0, 0.1, 0.9]] * 32)
GAP, COMPLEMENT, SUM = Objective("gap"), Objective("complement"), Objective("sum", 5.0)


@functools.cache
def searched() -> DeepRouter:
    return tiny_router(reward="cv", margins="cv", validation=0.25).fit(TEXTS, COSTS)


def choosing(columns: dict[str, list[int]]) -> Any:
    """A training after which a reward chooses these columns, and which gives its name."""
    return lambda objective: (np.eye(3)[columns[objective.reward]], objective.reward)


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[DeferralConfig]:
    """What networks are trained for, without training them."""
    asked: list[DeferralConfig] = []

    def fine_tune(
        _classifier: Any, _train: Any, _held_out: Any, deferral: DeferralConfig, _plan: Any
    ) -> float:
        asked.append(deferral)
        return 1.0

    monkeypatch.setattr(fitting, "fine_tune", fine_tune)
    return asked


def test_the_objective_that_pays_least_is_taken_and_says_why() -> None:
    costs = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]])
    found = select(
        [GAP, COMPLEMENT, SUM],
        choosing({"gap": [0, 0], "complement": [1, 0], "sum": [0, 1]}),
        costs,
    )
    assert (found.objective, found.trained) == (SUM, "sum")
    assert found.tried == {
        "reward": ["gap", "complement", "sum"],
        "margin": [1.0, 1.0, 5.0],
        "mean_cost": [0.5, 1.0, 0.0],
    }
    assert (
        found.reason
        == "sum reward, margins of 5: the lowest cost of 3 objectives on 2 held-out rows, 0"
    )


def test_of_equals_the_first_is_taken() -> None:
    found = select(
        [GAP, COMPLEMENT, SUM],
        choosing({"gap": [2], "complement": [1], "sum": [0]}),
        np.array([[0.5, 0.5, 0.7]]),
    )
    assert (found.objective, found.trained) == (COMPLEMENT, "complement")


def test_weights_of_held_out_rows_count() -> None:
    costs, ways = (
        np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]),
        choosing({"gap": [0, 0], "complement": [1, 1]}),
    )
    assert select([GAP, COMPLEMENT], ways, costs, np.array([1.0, 3.0])).objective == COMPLEMENT
    assert select([GAP, COMPLEMENT], ways, costs, np.array([3.0, 1.0])).tried["mean_cost"] == [
        0.25,
        0.75,
    ]


def test_without_held_out_rows_nothing_is_searched() -> None:
    asked: list[Objective] = []

    def train(objective: Objective) -> tuple[NDArray[np.float64], None]:
        asked.append(objective)
        return np.empty((0, 3)), None

    found = select([GAP, COMPLEMENT, SUM], train, np.empty((0, 3)))
    assert asked == [GAP]
    assert found.reason == "gap reward, margins of 1: for lack of held-out rows"


def test_rewards_that_say_the_same_are_tried_once() -> None:
    assert objectives_of(COSTS) == [GAP, COMPLEMENT, SUM]
    # One of two experts is always free: the other one's cost is the distance to the more expensive
    # one.
    two = np.array([[0.0, 1.0], [0.3, 0.0], [0.0, 0.0]])
    assert objectives_of(two, "cv", "uniform") == [
        Objective("gap", None),
        Objective("complement", None),
    ]
    assert objectives_of(two) == [GAP, COMPLEMENT, SUM]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [("gap", (1.0,) * 3), ("complement", (1.0,) * 3), ("sum", (5.0,) * 3)]),
        ({"reward": "sum"}, [("sum", (1.0,) * 3), ("sum", (5.0,) * 3)]),
        (
            {"margins": [1.0, 2.0, 3.0]},
            [("gap", (1.0, 2.0, 3.0)), ("complement", (1.0, 2.0, 3.0)), ("sum", (1.0, 2.0, 3.0))],
        ),
        ({"reward": "sum", "margins": "uniform"}, [("sum", (1.0,) * 3)]),
        ({"validation": 0}, [("gap", (1.0,) * 3)]),
    ],
)
def test_what_is_given_is_not_searched(
    given: dict[str, Any], expected: list[Any], trained: list[DeferralConfig]
) -> None:
    tiny_router(**{"reward": "cv", "margins": "cv"} | given).fit(TEXTS, COSTS)
    assert [(deferral.reward, deferral.margins) for deferral in trained] == expected


def test_the_reason_does_not_make_up_a_size_of_given_margins(trained: list[DeferralConfig]) -> None:
    router = tiny_router(reward="cv", margins=[1.0, 2.0, 3.0], validation=0.25).fit(TEXTS, COSTS)
    assert router.selection_.startswith(
        "gap reward, given margins: the lowest cost of 3 objectives"
    )
    assert router.cv_results_["margin"] == [None, None, None]
    assert len(trained) == 3


def test_one_network_is_kept_and_it_is_that_of_the_objective_taken() -> None:
    router = searched()
    assert router.reward_ in ("gap", "complement", "sum")
    assert (
        min(router.cv_results_["mean_cost"])
        == router.cv_results_["mean_cost"][router.cv_results_["reward"].index(router.reward_)]
    )
    assert router.validation_ is not None
    assert router.validation_["mean cost"]["value"] == pytest.approx(
        min(router.cv_results_["mean_cost"])
    )
    alone = tiny_router(reward=router.reward_, margins=router.margins_, validation=0.25).fit(
        TEXTS, COSTS
    )
    assert alone.decision_function(TEXTS).tobytes() == router.decision_function(TEXTS).tobytes()
    assert router.selection_ == f"{router.selection_.split(';')[0]}; {alone.selection_}"
    assert router.selection_.startswith(
        f"{router.reward_} reward, margins of {router.margins_[0]:g}: the lowest cost of 3"
    )


def test_a_stored_router_says_what_was_chosen(tmp_path: Path) -> None:
    folder = save_router(searched(), tmp_path / "router")
    loaded: Any = load_router(folder)
    assert (loaded.reward_, loaded.cv_results_) == (searched().reward_, searched().cv_results_)
    assert read_manifest(folder)["reward"] == searched().reward_
    known = config_of(searched()._network.model.config)
    assert known is not None
    assert known.reward == searched().reward_
    again = DeepRouter.from_pretrained(
        str(searched().save_pretrained(tmp_path / "model")), max_tokens=24, threads=1
    )
    assert again.reward_ == searched().reward_
    # Nothing was measured here, which must not keep a router from being stored.
    blind = tiny_router(reward="cv", margins="cv", epochs=1).fit(TEXTS[:8], COSTS[:8])
    assert (
        load_router(save_router(blind, tmp_path / "blind")).predict(TEXTS[:8]).tolist()
        == blind.predict(TEXTS[:8]).tolist()
    )
    assert blind.selection_.endswith("for lack of held-out rows")


def test_progress_counts_the_steps_of_all_trainings() -> None:
    calls: list[tuple[int, int]] = []
    settings: dict[str, Any] = {"reward": "gap", "margins": "cv", "epochs": 1, "validation": 0.25}
    tiny_router(**settings).fit(
        TEXTS, COSTS, progress=lambda done, total, _word: calls.append((done, total))
    )
    # 96 rows in batches of 16 make six steps, for each of two sizes of the margins.
    assert calls == [(step, 12) for step in range(1, 13)]


@pytest.mark.parametrize("wrong", [{"reward": "search"}, {"margins": "auto"}, {"reward": None}])
def test_other_words_are_refused_before_anything_is_trained(
    wrong: dict[str, Any], trained: list[DeferralConfig]
) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        tiny_router(**wrong).fit(TEXTS, COSTS)
    assert trained == []
