"""One-line rules: which one is found, and what it delivers on rows it has not seen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers._scripts import script_of
from mildroute.routers.rule_search import best_rule
from mildroute.routers.simple_rule import SimpleRule

Array = NDArray[np.float64]
Table = tuple[list[str], list[str], Array, Array]
LENGTHS = sorted(
    {
        round(digits * 10**exponent)
        for exponent in range(7)
        for digits in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    }
)


def two_experts(hard: NDArray[np.bool_], seed: int = 0) -> tuple[Array, Array]:
    """Scores and dollars of a small expert that fails on hard rows, and of a large one."""
    random = np.random.default_rng(seed)
    chances = np.stack([np.where(hard, 0.1, 0.9), np.full(len(hard), 0.9)], axis=1)
    scores = (random.uniform(size=chances.shape) < chances).astype(float)
    return scores, np.tile([0.001, 0.01], (len(hard), 1))


def noise(rows: int, seed: list[int], experts: int = 4) -> Table:
    """Scores that depend on nothing but luck; the most expensive expert is the best by little."""
    random = np.random.default_rng(seed)
    texts = ["x" * int(length) for length in random.lognormal(5, 1, rows)]
    groups = [f"group {number}" for number in random.integers(0, 12, rows)]
    scores = (random.uniform(size=(rows, experts)) < chances_of(experts)).astype(float)
    dollars = np.geomspace(0.0002, 0.01, experts) * random.uniform(0.5, 1.5, (rows, experts))
    return texts, groups, scores, dollars


def chances_of(experts: int) -> Array:
    return np.linspace(0.64, 0.7, experts)


# Which rule is found.


def test_a_group_that_only_the_large_expert_solves_decides() -> None:
    groups = [("math", "chat", "code")[row % 3] for row in range(600)]
    scores, dollars = two_experts(np.array(groups) == "math")
    found = best_rule(["same text"] * 600, groups, scores, dollars, quality=0.95)
    assert found is not None
    assert found.rule == SimpleRule("group", "math", inside=1, outside=0)
    assert found.choices.dtype == np.intp
    assert found.choices.tolist() == [int(group == "math") for group in groups]


def test_a_length_above_which_the_small_expert_fails_decides() -> None:
    lengths = np.random.default_rng(0).integers(100, 2000, 1000)
    scores, dollars = two_experts(lengths > 800)
    found = best_rule(["x" * length for length in lengths], None, scores, dollars, quality=0.98)
    assert found is not None
    assert found.rule == SimpleRule("characters", 800, inside=1, outside=0)
    assert (found.choices == (lengths > 800)).mean() > 0.9


def test_a_script_that_the_small_expert_cannot_read_decides() -> None:
    texts = ["今天天气怎么样" if row % 4 == 0 else "how is the sky" for row in range(400)]
    scores, dollars = two_experts(np.arange(400) % 4 == 0)
    found = best_rule([text.ljust(20) for text in texts], None, scores, dollars, quality=0.9)
    assert found is not None
    assert found.rule in [SimpleRule("script", "Latin", 0, 1), SimpleRule("script", "Han", 1, 0)]
    assert found.choices.tolist() == [int(row % 4 == 0) for row in range(400)]


def test_of_lengths_that_separate_the_same_rows_the_middle_one_is_taken() -> None:
    lengths = np.where(np.arange(300) % 3 == 0, 1000, 12)
    scores, dollars = two_experts(lengths > 100)
    found = best_rule(["x" * length for length in lengths], None, scores, dollars, quality=0.95)
    assert found is not None
    assert found.rule.feature == "characters"
    assert 50 <= int(found.rule.value) <= 200


def reference_rule(
    table: Table, clusters: Sequence[int], wanted: float
) -> tuple[float, float, set[SimpleRule]] | None:
    """Bill and score of the best rules, and these rules, by loops over everything."""
    texts, groups, scores, dollars = table
    rows, experts = range(len(texts)), range(scores.shape[1])
    means = [sum(scores[row, expert] for row in rows) / len(rows) for expert in experts]
    bills = [sum(dollars[row, expert] for row in rows) / len(rows) for expert in experts]
    best = min(experts, key=lambda expert: (-round(means[expert], 9), bills[expert]))

    def qualifies(choices: Sequence[int]) -> bool:
        surplus = [scores[row, choices[row]] - wanted * scores[row, best] for row in rows]
        mean = sum(surplus) / len(rows)
        squares = 0.0
        for cluster in set(clusters):
            members = [row for row in rows if clusters[row] == cluster]
            squares += sum(surplus[row] - mean for row in members) ** 2
        count = len(set(clusters))
        return mean >= (squares * count / (count - 1)) ** 0.5 / len(rows) - 1e-9

    limit = min(
        bills[expert] for expert in experts if expert == best or qualifies([expert] * len(rows))
    )
    found = []
    for rule in candidates(texts, groups, len(experts)):
        choices = rule.apply(texts, groups).tolist()
        bill = sum(dollars[row, choices[row]] for row in rows) / len(rows)
        score = sum(scores[row, choices[row]] for row in rows) / len(rows)
        if bill < limit * (1 - 1e-9) and qualifies(choices):
            found.append((round(bill, 9), -round(score, 9), rule))
    if not found:
        return None
    bill, score = min(each[:2] for each in found)
    return bill, -score, {rule for *key, rule in found if tuple(key) == (bill, score)}


def candidates(texts: Sequence[str], groups: Sequence[str], experts: int) -> list[SimpleRule]:
    values: list[tuple[Any, Any]] = [("group", group) for group in set(groups)]
    below = {length: sum(len(text) <= length for text in texts) for length in LENGTHS}
    for count in set(below.values()) - {0, len(texts)}:
        equal = [length for length in LENGTHS if below[length] == count]
        values.append(("characters", equal[len(equal) // 2]))
    values += [("script", script) for script in {script_of(text) for text in texts}]
    rules = []
    for feature, value in values:
        sides = set(SimpleRule(feature, value, 0, 1).apply(texts, groups).tolist())
        if len(sides) == 2:
            rules += [SimpleRule(feature, value, *pair) for pair in permutations(range(experts), 2)]
    return rules


@given(st.integers(0, 10**6), st.integers(2, 45), st.integers(2, 4), st.booleans())
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_search_agrees_with_loops_over_all_rules(
    seed: int, rows: int, experts: int, copies: bool
) -> None:
    random = np.random.default_rng(seed)
    alphabet = ["a", "й", "字", "1"]
    texts = [str(random.choice(alphabet)) * int(random.integers(0, 40)) for _ in range(rows)]
    groups = [str(name) for name in random.choice(["a", "b", "c"], rows)]
    scores = random.choice([0.0, 0.5, 1.0], (rows, experts))
    dollars = random.choice([1.0, 2.0, 5.0], (rows, experts))
    clusters = random.integers(0, max(1, rows // 2), rows) if copies else np.arange(rows)
    wanted = float(random.choice([0.5, 0.8, 0.95, 1.0]))
    found = best_rule(texts, groups, scores, dollars, quality=wanted, clusters=clusters)
    if len(set(clusters)) < 2:
        assert found is None
        return
    expected = reference_rule((texts, groups, scores, dollars), clusters.tolist(), wanted)
    if expected is None or found is None:
        assert found is expected
        return
    assert found.rule in expected[2]


# What the rule delivers on rows that it has not seen.


@pytest.mark.parametrize("wanted", [0.9, 0.95, 1.0])
def test_out_of_fold_choices_promise_no_more_than_fresh_rows_deliver(wanted: float) -> None:
    fresh_texts, fresh_groups, _, _ = noise(5000, [0, 0])
    out_of_fold, in_sample = [], []
    for draw in range(40):
        texts, groups, scores, dollars = noise(200, [draw, 1])
        found = best_rule(texts, groups, scores, dollars, quality=wanted, seed=draw)
        if found is None:
            continue
        chosen = found.rule.apply(fresh_texts, fresh_groups)
        delivered = float(chances_of(4)[chosen].mean())
        rows = np.arange(len(texts))
        out_of_fold.append(scores[rows, found.choices].mean() - delivered)
        in_sample.append(scores[rows, found.rule.apply(texts, groups)].mean() - delivered)
    assert len(out_of_fold) >= 20
    error = np.std(out_of_fold, ddof=1) / len(out_of_fold) ** 0.5
    assert np.mean(out_of_fold) <= 2 * error
    # The same rules look far better on the rows that chose them.
    assert np.mean(in_sample) > 0.02


def test_copies_of_a_row_do_not_tell_its_score_to_the_rule_of_its_fold() -> None:
    """Each group is one prompt asked five times, so its score is known only from its copies."""
    kept: dict[bool, list[float]] = {True: [], False: []}
    for draw in range(150):
        random = np.random.default_rng([draw, 7])
        prompts = np.repeat(np.arange(12), 5)
        scores = (random.uniform(size=(12, 3)) < 0.6).astype(float)[prompts]
        dollars = np.tile([0.001, 0.002, 0.01], (60, 1))
        texts, groups = ["same"] * 60, [str(prompt) for prompt in prompts]
        for known in (True, False):
            clusters = prompts if known else None
            found = best_rule(
                texts, groups, scores, dollars, quality=1.0, clusters=clusters, seed=draw
            )
            if found is not None:
                kept[known].append(scores[np.arange(60), found.choices].mean() - 0.6)
    assert len(kept[True]) > 50
    error = np.std(kept[True], ddof=1) / len(kept[True]) ** 0.5
    assert np.mean(kept[True]) <= 2 * error
    assert np.mean(kept[False]) > 0.05


def test_rows_of_one_cluster_are_in_one_fold() -> None:
    """Rows with equal features in one cluster get equal choices, for they share their rule."""
    random = np.random.default_rng(3)
    texts, groups, scores, dollars = noise(100, [5, 5])
    prompts = np.repeat(np.arange(100), 3)
    order = random.permutation(300)
    rows = prompts[order]
    found = best_rule(
        [texts[row] for row in rows],
        [groups[row] for row in rows],
        scores[rows],
        dollars[rows],
        quality=0.9,
        clusters=rows * 7 + 3,
    )
    assert found is not None
    for prompt in range(100):
        assert len(set(found.choices[rows == prompt])) == 1


def test_a_fold_without_a_rule_goes_to_a_single_expert() -> None:
    """Ten rows in two folds: five rows show no rule, or one; every row has a choice."""
    scores = np.array([[1.0, 1.0]] * 6 + [[0.0, 1.0]] * 4)
    dollars = np.tile([1.0, 10.0], (10, 1))
    groups = ["easy"] * 6 + ["hard"] * 4
    clusters = np.array([0] * 6 + [1] * 4)
    found = best_rule(["?"] * 10, groups, scores, dollars, quality=1.0, clusters=clusters, folds=2)
    assert found is not None
    assert found.rule == SimpleRule("group", "easy", 0, 1)
    # Without the easy rows the best expert is the large one; without the hard ones both are
    # equal, and the small one is cheaper.
    assert found.choices.tolist() == [1] * 6 + [0] * 4


def test_the_same_seed_gives_the_same_choices() -> None:
    table = noise(200, [1, 2])
    first, second = (best_rule(*table, quality=0.9, seed=4) for _ in range(2))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first.choices, second.choices)


# When there is no rule.


def test_equal_dollars_leave_nothing_to_save() -> None:
    texts, groups, scores, _ = noise(200, [1, 2])
    for price in (0.0, 0.01):
        dollars = np.full(scores.shape, price)
        assert best_rule(texts, groups, scores, dollars, quality=0.5) is None


def test_equal_scores_leave_the_cheapest_expert() -> None:
    texts, groups, _, dollars = noise(200, [1, 2])
    for score in (0.0, 0.3, 1.0):
        scores = np.full(dollars.shape, score)
        assert best_rule(texts, groups, scores, np.sort(dollars), quality=0.9) is None


def test_a_cheap_expert_that_qualifies_alone_needs_no_rule() -> None:
    scores, dollars = two_experts(np.zeros(200, dtype=bool))
    groups = ["a", "b"] * 100
    assert best_rule(["?"] * 200, groups, scores, dollars, quality=0.8) is None


@pytest.mark.parametrize(
    ("texts", "groups", "experts"),
    [
        ([], None, 2),
        (["one"], ["a"], 2),
        (["same"] * 30, ["a"] * 30, 2),
        ([""] * 30, None, 2),
        (["a", "b"] * 15, ["a", "b"] * 15, 1),
        (["same"] * 30, [None] * 30, 2),
    ],
    ids=["no rows", "one row", "one group", "empty texts", "one expert", "no group known"],
)
def test_nothing_to_separate_is_no_rule(texts: list[str], groups: Any, experts: int) -> None:
    scores = np.tile([0.5, 1.0][:experts], (len(texts), 1))
    dollars = np.tile([1.0, 9.0][:experts], (len(texts), 1))
    assert best_rule(texts, groups, scores, dollars, quality=0.9) is None


def test_one_cluster_says_nothing_about_luck() -> None:
    groups = ["easy", "hard"] * 20
    scores = np.array([[1.0, 1.0], [0.0, 1.0]] * 20)
    dollars = np.tile([1.0, 9.0], (40, 1))
    one = np.zeros(40, dtype=np.intp)
    assert best_rule(["?"] * 40, groups, scores, dollars, quality=1.0) is not None
    assert best_rule(["?"] * 40, groups, scores, dollars, quality=1.0, clusters=one) is None


# Arguments, words and application.


def test_wrong_arguments_are_named() -> None:
    texts, groups, scores, dollars = noise(20, [1, 2])
    unknown = scores.copy()
    unknown[3, 1] = np.nan
    with pytest.raises(ArgumentError, match="must be finite"):
        best_rule(texts, groups, unknown, dollars, quality=0.9)
    with pytest.raises(ArgumentError, match="must be finite"):
        best_rule(texts, groups, scores, -dollars, quality=0.9)
    with pytest.raises(ShapeError, match=r"dollars must be \(20, 4\)"):
        best_rule(texts, groups, scores, dollars[0], quality=0.9)
    with pytest.raises(ShapeError, match=r"scores must be \(19, p\)"):
        best_rule(texts[1:], groups, scores, dollars, quality=0.9)
    with pytest.raises(ShapeError, match=r"groups must be \(20,\)"):
        best_rule(texts, groups[1:], scores, dollars, quality=0.9)
    with pytest.raises(ShapeError, match=r"clusters must be \(20,\)"):
        best_rule(texts, groups, scores, dollars, quality=0.9, clusters=np.arange(3))
    for wanted in (0.0, float("nan"), float("inf")):
        with pytest.raises(ArgumentError, match="quality must be"):
            best_rule(texts, groups, scores, dollars, quality=wanted)
    with pytest.raises(ArgumentError, match="folds must be"):
        best_rule(texts, groups, scores, dollars, quality=0.9, folds=1)


def test_words_name_the_feature_and_both_experts() -> None:
    experts = ["llama", "gpt-4o"]
    words = {
        rule.feature if rule.value != "other" else "other": rule.words(experts)
        for rule in [
            SimpleRule("group", "math", 1, 0),
            SimpleRule("characters", 1200, 1, 0),
            SimpleRule("script", "Cyrillic", 0, 1),
            SimpleRule("script", "other", 0, 1),
        ]
    }
    assert words == {
        "group": "group 'math' goes to gpt-4o, everything else to llama",
        "characters": "prompts over 1,200 characters go to gpt-4o, the rest to llama",
        "script": "prompts in Cyrillic script go to llama, the rest to gpt-4o",
        "other": "prompts in other scripts or without letters go to llama, the rest to gpt-4o",
    }


def test_a_rule_is_applied_to_new_prompts() -> None:
    texts = ["short", "a longer text", "текст"]
    assert SimpleRule("characters", 5, 2, 0).apply(texts, None).tolist() == [0, 2, 0]
    assert SimpleRule("script", "Cyrillic", 2, 1).apply(texts, None).tolist() == [1, 1, 2]
    by_group = SimpleRule("group", "a", 1, 0)
    groups: Any = ["a", None, "b"]
    assert by_group.apply(texts, groups).tolist() == [1, 0, 0]
    assert by_group.apply([], []).shape == (0,)
    with pytest.raises(ArgumentError, match="pass groups"):
        by_group.apply(texts, None)
    with pytest.raises(ShapeError, match=r"groups must be \(3,\)"):
        by_group.apply(texts, ["a"])


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Wie heißt du? ñ é ő", "Latin"),
        ("今天天气怎么样", "Han"),
        ("今日の天気は", "Japanese"),
        ("株式会社東京電力の電気料金", "Japanese"),
        ("ｶﾀｶﾅ", "Japanese"),
        ("오늘 날씨", "Hangul"),
        ("Какая погода в Berlin", "Cyrillic"),
        ("كيف الطقس اليوم", "Arabic"),
        ("आज मौसम कैसा है", "Devanagari"),
        ("วันนี้อากาศเป็นอย่างไร", "Thai"),
        ("γλώσσα", "other"),
        ("", "other"),
        ("1 + 1 = 2 🙂", "other"),
        ("\ud800", "other"),
    ],
)
def test_the_script_of_a_text_is_that_of_most_letters(text: str, script: str) -> None:
    assert script_of(text) == script


# Speed.


@pytest.mark.parametrize("copies", [1, 3])
def test_thirty_experts_and_five_thousand_rows_take_under_two_seconds(copies: int) -> None:
    texts, groups, scores, dollars = noise(5000, [9, 9], experts=30)
    clusters = np.arange(5000) // copies
    started = time.process_time()
    found = best_rule(texts, groups, scores, dollars, quality=0.95, clusters=clusters)
    assert time.process_time() - started < 2
    assert found is not None
