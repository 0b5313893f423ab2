"""A linear router from shards ends where the same router from memory ends."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mildroute.distributed.statistics import LinearConfig
from mildroute.distributed.training import train
from mildroute.persistence import load_router, save_router
from mildroute.routers._decision import MARGIN_RULES, margins_by, scaled_rewards
from mildroute.routers._linear_model import deferral_row_loss, minimize_linear, whiten
from mildroute.routers.mild import MildRouter
from tests.distributed.training.problems import EXPERTS, rows, write


@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
@pytest.mark.parametrize("margins", ["uniform", "theory", "winner_counts"])
@pytest.mark.parametrize("shift", [0.0, -0.7])
def test_the_optimum_is_that_of_the_problem_in_memory(
    tmp_path: Path, reward: str, margins: str, shift: float
) -> None:
    vectors, costs = rows()
    costs = costs * 0.6 + shift
    found = train(
        write(tmp_path, vectors, costs),
        LinearConfig(reward, margins, alpha=1e-3, sample=500, tolerance=1e-9),
    )
    rewards = scaled_rewards(costs, reward, None)
    shares = np.ones(3) if margins == "uniform" else margins_by(MARGIN_RULES[margins], rewards)
    exact = minimize_linear(
        whiten(vectors.astype(np.float64)),
        deferral_row_loss(rewards, shares / shares.mean()),
        3,
        alpha=1e-3,
    )
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)
    np.testing.assert_allclose(found.router.margins_, shares)
    scores, known = (
        found.router.decision_function(vectors.astype(float)) / shares.mean(),
        exact.scores(vectors.astype(np.float64)),
    )
    np.testing.assert_allclose(
        scores - scores.mean(axis=1, keepdims=True),
        known - known.mean(axis=1, keepdims=True),
        atol=0.01,
    )


def test_it_chooses_like_the_router_in_memory_and_can_be_stored(tmp_path: Path) -> None:
    vectors, costs = rows()
    found = train(
        write(tmp_path / "shards", vectors, costs), LinearConfig(alpha=1e-3, tolerance=1e-9)
    ).router
    known = MildRouter(reward="gap", margins="uniform", alpha=1e-3, features="raw").fit(
        vectors.astype(float), costs
    )
    assert (
        found.predict(vectors.astype(float)) == known.predict(vectors.astype(float))
    ).mean() > 0.995
    assert tuple(found.experts_) == EXPERTS
    save_router(found, tmp_path / "router")
    np.testing.assert_array_equal(
        load_router(tmp_path / "router").predict_proba(vectors[:9]),
        found.predict_proba(vectors[:9]),
    )


def test_a_run_that_was_stopped_goes_on_where_it_stopped(tmp_path: Path) -> None:
    vectors, costs = rows()
    shards = write(tmp_path / "shards", vectors, costs)
    whole = train(shards, LinearConfig(sample=50, tolerance=1e-9))
    train(
        shards,
        LinearConfig(sample=50, tolerance=1e-9, max_steps=3),
        storage=str(tmp_path),
        name="run",
    )
    rest = train(shards, LinearConfig(sample=50, tolerance=1e-9), storage=str(tmp_path), name="run")
    assert rest.steps == whole.steps
    assert rest.objective == pytest.approx(whole.objective, rel=1e-12)


def test_a_run_that_has_ended_is_not_run_again(tmp_path: Path) -> None:
    vectors, costs = rows(600)
    shards, seen = write(tmp_path / "shards", vectors, costs), []
    first = train(shards, LinearConfig(), storage=str(tmp_path), name="run")
    again = train(shards, LinearConfig(), storage=str(tmp_path), name="run", progress=seen.append)
    assert again.objective == first.objective
    assert seen == []


def test_a_sample_saves_passes(tmp_path: Path) -> None:
    vectors, costs = rows(20_000)
    shards = write(tmp_path, vectors, costs, group=5000)
    assert (
        train(shards, LinearConfig(sample=10_000)).passes
        < train(shards, LinearConfig(sample=20)).passes
    )


def test_the_figures_of_each_step_are_told_and_never_rise(tmp_path: Path) -> None:
    vectors, costs = rows()
    seen: list[dict[str, float]] = []
    train(write(tmp_path, vectors, costs), LinearConfig(sample=30), progress=seen.append)
    values = [figures["objective"] for figures in seen]
    assert len(values) > 2
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(values))
