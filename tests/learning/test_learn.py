"""One learning run: which rows a candidate learns from, what judges it, and the verdict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mildroute.evaluation.sequential import compare_sequentially
from mildroute.exceptions import ArgumentError, TableError
from mildroute.learning.learn import LearnOptions, learn, training_cut, verdict_of
from mildroute.routers.frontier.target import Target
from tests.learning.world import SONGS, World, ideal_router

OPTIONS = LearnOptions(encoder=None, target=Target("quality", 0.95), min_rows=100)


def choice_by_word(text: str) -> str:
    return "large" if text.split()[0] in ("sing", "rhyme") else "small"


def test_a_candidate_that_saves_is_promoted_by_samples(tmp_path: Path) -> None:
    World(tmp_path / "log", sampling=1.0).serve(700)
    result = learn(tmp_path / "log", None, OPTIONS)
    assert result.action == "promote", result.why
    assert result.candidate is not None
    assert (result.number, result.trained_on, result.judged) == (3, 400, 300)
    assert result.comparison is not None
    # Songs are 85 points better at the large expert.
    assert result.comparison.gain.low > 0.1
    assert result.comparison.gain.value < SONGS
    assert "at an error of 0.0034 over all runs" in result.why


def test_a_candidate_that_saves_is_promoted_by_exploration(tmp_path: Path) -> None:
    World(tmp_path / "log", exploration=0.4, sampling=0.3).serve(150)
    World(tmp_path / "log", exploration=0.4, seed=2, now=2_000_000.0).serve(900)
    options = LearnOptions(target=Target("quality", 0.95), min_rows=100, min_propensity=0.2)
    result = learn(tmp_path / "log", None, options)
    assert result.action == "promote", result.why


def test_a_candidate_like_the_router_in_use_is_not_promoted(tmp_path: Path) -> None:
    World(tmp_path / "log", choice_by_word, sampling=1.0).serve(700)
    for current in (None, ideal_router()):
        result = learn(tmp_path / "log", current, OPTIONS)
        assert result.action == "keep", result.why
        assert result.candidate is not None


def test_until_the_log_has_doubled_the_candidate_is_the_same(tmp_path: Path) -> None:
    world = World(tmp_path / "log", sampling=1.0)
    world.serve(130)
    texts = [f"{word} 17" for word in ("add", "sum", "sing", "rhyme")]
    first = learn(tmp_path / "log", None, OPTIONS)
    world.serve(60)
    second = learn(tmp_path / "log", None, OPTIONS)
    world.serve(40)
    third = learn(tmp_path / "log", None, OPTIONS)
    assert first.candidate is not None
    assert second.candidate is not None
    posteriors = [each.candidate.router.predict_proba(texts) for each in (first, second)]  # type: ignore[union-attr]
    np.testing.assert_array_equal(*posteriors)
    figures = [(each.number, each.trained_on, each.judged) for each in (first, second, third)]
    assert figures == [(1, 100, 30), (1, 100, 90), (2, 200, 30)]


def test_without_enough_the_router_stays_and_it_says_what_is_missing(tmp_path: Path) -> None:
    World(tmp_path / "log").serve(20)
    result = learn(tmp_path / "log", None, OPTIONS)
    assert (result.action, result.candidate) == ("keep", None)
    assert result.why.startswith(
        "20 decisions with a text and a score, but the first fit needs 100"
    )
    World(tmp_path / "log", seed=2, now=2_000_000.0).serve(300)
    result = learn(tmp_path / "log", None, OPTIONS)
    assert result.why.startswith("no candidate can be fitted: ")


def test_what_no_router_decided_does_not_judge(tmp_path: Path) -> None:
    world = World(tmp_path / "log", sampling=1.0)
    world.serve(101)
    world.serve(20, reason="pinned")
    world.serve(20, reason="sticky")
    world.serve(20, target="quality 0.5")
    world.serve(20, conversation="one")
    result = learn(tmp_path / "log", None, OPTIONS)
    assert result.judged == 2  # the row after the cut, and one of the conversation


def test_decisions_at_the_target_of_the_run_judge(tmp_path: Path) -> None:
    world = World(tmp_path / "log", sampling=1.0)
    world.serve(101)
    world.serve(20, target="quality 0.95")  # as mildroute decide --quality 0.95 logs them
    assert learn(tmp_path / "log", None, OPTIONS).judged == 21


def test_a_log_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="is not a folder"):
        learn(tmp_path / "log", None, OPTIONS)


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"min_propensity": 0.0}, {"min_rows": 0}]
)
def test_wrong_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(settings))):
        LearnOptions(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rows", "number", "cut"),
    [(100, 0, 0), (101, 1, 100), (200, 1, 100), (201, 2, 200), (400, 2, 200), (401, 3, 400)],
)
def test_each_candidate_learns_from_twice_as_many(rows: int, number: int, cut: int) -> None:
    found = training_cut([float(second) for second in range(rows)], 100)
    assert (0, 0) if found is None else (found.number, found.time) == (number, cut)


def test_a_verdict_needs_evidence_and_decisions() -> None:
    good, flat = np.full(400, 0.5), np.zeros(400)
    assert verdict_of(compare_sequentially(good, 2.0), 0.03)[0] == "promote"
    assert verdict_of(compare_sequentially(good[:199], 2.0), 0.03)[0] == "keep"
    assert "decides like the router in use" in verdict_of(compare_sequentially(flat, 2.0), 0.03)[1]
    assert "the router in use is better" in verdict_of(compare_sequentially(-good, 2.0), 0.03)[1]
    assert "no later decision" in verdict_of(compare_sequentially([], 1.0), 0.03)[1]
