"""What fit promises on tables whose prompts repeat, and what it is measured against."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mildroute import Target, fit
from mildroute.costs.table import CostTable
from mildroute.evaluation.comparison import compare
from mildroute.evaluation.router_evaluation import evaluate
from mildroute.exceptions import ArgumentError, TableError
from mildroute.persistence import load_router, save_router
from mildroute.routers.knn import KNNRouter
from tests.support.questions import FRESH, questions, repeated, table_of, word


def kept_on_fresh_rows(fitted: Any) -> float:
    choice = fitted.router.predict(FRESH.inputs, request_ids=FRESH.query_ids)
    return float(FRESH.scores[np.arange(3000), choice].mean() / FRESH.scores[:, 1].mean())


@pytest.mark.parametrize("times", [pytest.param(2, marks=pytest.mark.slow), 5])
def test_the_promise_on_repeated_prompts_is_about_new_ones(times: int) -> None:
    for seed in range(2):
        fitted = fit(repeated(240, times, seed), target=Target("quality", 0.9), thorough=False)
        assert fitted.warnings[0] == (
            f"{240 * times:,} rows are 240 different prompts; everything is cross-validated by"
            " prompt"
        )
        low, high = fitted.point.kept_interval
        assert low - 0.03 <= kept_on_fresh_rows(fitted) <= high + 0.03
        assert kept_on_fresh_rows(fitted) >= 0.9 - 0.02


def test_copies_do_not_make_intervals_narrower() -> None:
    once, often = (
        fit(repeated(240, times), target=Target("quality", 0.9), thorough=False).point
        for times in (1, 4)
    )
    widths = [high - low for low, high in (once.score_interval, often.score_interval)]
    assert widths[1] == pytest.approx(widths[0], rel=0.25)


def test_a_router_that_knows_its_rows_by_heart_promises_no_more() -> None:
    """Nearest neighbors find the copies of a row; without folds by prompt they look perfect."""
    fitted = fit(repeated(240, 5), router=KNNRouter(), target=Target("quality", 0.9))
    assert kept_on_fresh_rows(fitted) >= 0.87


def test_below_200_prompts_only_mixes_make_promises_and_the_reason_is_told() -> None:
    fitted = fit(repeated(150, 2), target=Target("quality", 0.9), thorough=False)
    assert not fitted.point.uses_router
    assert "below 200, a random mix of experts keeps a quality more surely" in fitted.warnings[-1]
    few = fit(repeated(25, 8), target=Target("quality", 0.9), thorough=False)
    assert few.point.shares == pytest.approx((0.0, 1.0))
    assert "only 25 different prompts" in few.warnings[-1]
    # A price weight promises no quality, and takes the router as it is.
    weighed = fit(repeated(150, 2), target=Target("price weight", 20.0), thorough=False)
    assert weighed.point.uses_router


def test_savings_are_measured_against_the_baseline() -> None:
    rng = np.random.default_rng(0)
    texts, scores, _ = questions(400, 1)
    columns = {"input": texts}
    for name, cost in {"a": 0.001, "b": 0.01, "gold": 0.05}.items():
        right = (
            scores[:, 1] if name == "b" else scores[:, 0] if name == "a" else rng.random(400) < 0.5
        )
        columns |= {f"score:{name}": right.astype(float), f"cost:{name}": np.full(400, cost)}
    table = CostTable.from_data(columns)
    most, named = (
        fit(table, target=Target("quality", 0.95), thorough=False, baseline=name)
        for name in (None, "b")
    )
    assert most.point.dollars_per_1000 == pytest.approx(named.point.dollars_per_1000)
    assert most.point.saved == pytest.approx(1 - most.point.dollars_per_1000 / 50)
    assert named.point.saved == pytest.approx(1 - named.point.dollars_per_1000 / 10)
    assert "of the bill of gold" in str(most.headline)
    assert "of the score of b, the best in the table" in str(most.headline)
    assert most.lines[0].words == "all to gold, the most expensive"
    assert named.lines[0].words == "all to b"
    found = evaluate(named.router, table.take(np.arange(200)))
    assert found.savings is not None
    assert found.savings.baseline == "b"
    with pytest.raises(ArgumentError, match=r"baseline must be an expert.*did you mean 'gold'"):
        fit(table, baseline="golf")


def test_the_three_lines_of_a_table_that_a_rule_solves(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    is_code = rng.random(600) < 0.4
    texts = [" ".join(word(rng) for _ in range(8)) for _ in range(600)]
    scores = np.stack([np.where(is_code, 0.0, 1.0), np.ones(600)], axis=1)
    table = table_of(texts, scores, group=np.where(is_code, "code", "chat"))
    fitted = fit(table, target=Target("quality", 0.95), thorough=False)
    today, simple, router = fitted.lines
    assert [line.role for line in fitted.lines] == [
        "your baseline",
        "simplest alternative",
        "router",
    ]
    assert "group" in simple.words
    assert simple.saved[0] == pytest.approx(0.9 * (~is_code).mean(), abs=0.05)
    assert simple.kept[0] == pytest.approx(1.0)
    assert today.saved == (0.0, 0.0, 0.0)
    assert router.dollars_per_1000[0] > simple.dollars_per_1000[0]
    # They are measured on other rows after the router has been stored.
    stored = load_router(save_router(fitted.router, tmp_path / "router"))
    lines = evaluate(stored, table.take(np.arange(300))).lines
    assert [line.role for line in lines] == [line.role for line in fitted.lines]
    assert lines[1].kept[0] == 1.0
    # Without groups the rule cannot be read, and is left out.
    bare = table_of(texts[:300], scores[:300])
    assert [line.role for line in evaluate(stored, bare).lines] == ["your baseline", "router"]


def lengths(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    words = rng.integers(2, 40, 600)
    texts = [" ".join(word(rng) for _ in range(count)) for count in words]
    return texts, np.stack([words < 20, np.ones(600)], axis=1).astype(float)


def scripts(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    is_han = rng.random(600) < 0.5
    letters = [chr(0x4E00 + code) for code in range(300)]
    texts = [
        "".join(rng.choice(letters, 55)) if han else " ".join(word(rng) for _ in range(8))
        for han in is_han
    ]
    return texts, np.stack([~is_han, np.ones(600)], axis=1).astype(float)


def luck(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    texts = [" ".join(word(rng) for _ in range(8)) for _ in range(600)]
    return texts, (rng.random((600, 2)) < [0.5, 0.9]).astype(float)


def equal(rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    return luck(rng)[0], np.ones((600, 2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lengths, r"prompts over \d+ characters go to large"),
        (scripts, r"script go to (large|small)"),
        (luck, r"at random|all to large"),
        (equal, "all to small"),
    ],
)
def test_the_simplest_alternative_of_other_tables(make: Any, words: str) -> None:
    table = table_of(*make(np.random.default_rng(3)))
    fitted = fit(table, target=Target("quality", 0.95), thorough=False)
    _, simple, router = fitted.lines
    assert re.search(words, simple.words), simple.words
    assert simple.kept[0] >= 0.95
    assert router.kept[0] >= 0.95
    # TF-IDF does not see how long a prompt is: then the rule is the better router, and it is said.
    is_better = simple.dollars_per_1000[0] < 0.99 * router.dollars_per_1000[0]
    assert is_better == any("the simplest alternative" in each for each in fitted.warnings)


def test_a_new_group_is_told_of_where_groups_are_kinds() -> None:
    rng = np.random.default_rng(0)
    texts, scores, _ = questions(600, 5)
    groups = rng.integers(0, 12, 600).astype(str)
    fitted = fit(
        table_of(texts, scores, group=groups), target=Target("quality", 0.9), thorough=False
    )
    found = fitted.new_groups
    assert found is not None
    assert found.groups == 12
    kept, low, high = found.kept
    assert low < kept < high
    assert "on a kind of prompt that is not in the table" in found.sentence
    # Groups that mean nothing are no different from each other.
    assert kept == pytest.approx(fitted.point.kept, abs=0.06)
    alone = fit(table_of(texts, scores), target=Target("quality", 0.9), thorough=False)
    assert alone.new_groups is None


def test_whole_groups_are_held_out_on_request() -> None:
    texts, scores, _ = questions(400, 6)
    table = table_of(texts, scores, group=(np.arange(400) % 40).astype(str))
    fitted = fit(table.with_whole_groups(), target=Target("quality", 0.9), thorough=False)
    assert fitted.warnings[0] == "400 rows are 40 groups; everything is cross-validated by group"
    assert fitted.new_groups is None
    with pytest.raises(TableError, match="need the column 'group'"):
        table_of(texts, scores).with_whole_groups()


def test_the_latest_rows_show_what_the_promise_loses_with_time() -> None:
    texts, scores, _ = questions(600, 7)
    late = np.arange(600) >= 480
    scores[late, 0] = 0.0  # the small expert breaks down
    table = table_of(texts, scores, time=np.arange(600.0))
    fitted = fit(table, target=Target("quality", 0.9), thorough=False, order="time")
    assert fitted.later is not None
    assert fitted.later.rows == 120
    assert fitted.later.kept[0] < 0.8
    assert fitted.later.sentence.endswith("the promise would have been broken")
    with pytest.raises(ArgumentError, match="measures what a quality loses"):
        fit(table, target=Target("budget", 5.0), order="time")
    with pytest.raises(TableError, match="needs the column 'time'"):
        fit(table_of(texts, scores), order="time")


def test_conversations_are_resampled_and_compared_as_a_whole() -> None:
    _, scores, _ = questions(100, 8)
    rows = np.repeat(np.arange(100), 4)
    rng = np.random.default_rng(0)
    turns = [" ".join(word(rng) for _ in range(8)) for _ in rows]
    together = table_of(turns, scores[rows], conversation=[f"c{row}" for row in rows])
    apart = table_of(turns, scores[rows])
    wide, narrow = (
        compare(table, {"kNN": KNNRouter()}, seed=1).row("best single").score
        for table in (together, apart)
    )
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)
