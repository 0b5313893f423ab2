"""Which rows must be held out together."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from mildroute.costs.clusters import find_clusters, outcome_similarity
from mildroute.costs.links import link
from mildroute.costs.table import CostTable

WORDS = re.findall(
    r"\w+",
    "amber brisk cedar delta ember flint grove haven iris jade kelp lunar maple north opal pearl"
    " quartz river stone tulip umber vivid willow zephyr",
)


def prompts(count: int, seed: int = 0) -> list[str]:
    """Sentences of thirty words each that have little in common."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 30)) + f" {'abcdefgh'[row % 8]}" for row in range(count)]


def outcomes(rows: int, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).random((rows, 3)) < [0.5, 0.7, 0.9]).astype(float)


def partition(codes: Any) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(codes == code).tolist()) for code in np.unique(codes)}


def test_copies_differ_in_case_spaces_and_signs_at_the_ends_only() -> None:
    texts = ["What is Delta?", "what  is\ndelta", "WHAT IS DELTA!", "  what is delta;", "other"]
    assert find_clusters(texts).codes.tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("times", [2, 5])
@pytest.mark.parametrize(
    "change",
    [
        lambda text, copy: f"[request {copy * 7919:08x}-{copy:04x}] {text}",
        lambda text, copy: f"{text} case {copy}",
        lambda text, copy: text.upper() if copy % 2 else f"{text}, please",
    ],
    ids=["id", "number", "words and case"],
)
def test_prompts_of_one_template_that_share_their_outcome_are_linked(
    times: int, change: Any
) -> None:
    bare = prompts(40)
    texts = [
        change(text, 11 * row + copy) for row, text in enumerate(bare) for copy in range(times)
    ]
    scores = np.repeat(outcomes(40), times, axis=0)
    noisy = np.where(np.random.default_rng(2).random(scores.shape) < 0.1, 1 - scores, scores)
    expected = partition(np.repeat(np.arange(40), times))
    for judged in (scores, noisy):
        assert partition(find_clusters(texts, scores=judged).codes) == expected


def test_templates_whose_prompts_have_outcomes_of_their_own_are_not_linked() -> None:
    texts = [f"{text} case {copy}" for text in prompts(20) for copy in range(5)]
    assert len(find_clusters(texts, scores=outcomes(100))) == 100


PREAMBLE = " ".join(prompts(2, seed=9))


@pytest.mark.parametrize("seed", range(4))
def test_copies_are_found_among_prompts_that_all_begin_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bare = [f"{PREAMBLE} {text}" for text in prompts(100, seed)]
    rows = np.repeat(np.arange(100), 4)
    texts = [f"{bare[row]} {rng.integers(99)}{' thanks' * rng.integers(2)}" for row in rows]
    copied = outcomes(100, seed)[rows]
    judged = np.where(rng.random(copied.shape) < 0.1, 1 - copied, copied)
    for scores in (copied, judged):
        found = find_clusters(texts, scores=scores)
        copies_together = partition(link(found.codes, rows)) == partition(found.codes)
        assert copies_together
        assert 95 <= len(found) <= 100
    assert len(find_clusters(texts, scores=outcomes(400, seed))) >= 380


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [60, 300, 800])
def test_prompts_that_all_begin_alike_are_not_glued_together(rows: int, seed: int) -> None:
    texts = [f"{PREAMBLE} {text}" for text in prompts(rows, seed)]
    assert len(find_clusters(texts, scores=outcomes(rows, seed))) >= 0.95 * rows


@pytest.mark.parametrize("seed", range(4))
def test_copies_are_found_beside_a_large_template_with_outcomes_of_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    bare = prompts(75, seed)
    rows = np.concatenate([np.repeat(np.arange(75), 4), 75 + np.arange(300)])
    texts = [f"{bare[row]} {rng.integers(99)}{' thanks' * rng.integers(2)}" for row in rows[:300]]
    texts += [f"What is {rng.integers(99)} times {rng.integers(99)}?" for _ in range(300)]
    scores = outcomes(375, seed)[rows]
    codes = find_clusters(texts, scores=scores).codes
    assert partition(codes[:300]) == partition(rows[:300])
    # The same sum, asked twice, is the same prompt.
    assert len(np.unique(codes[300:])) == len(set(texts[300:]))


def test_two_templates_that_decide_the_outcome_are_kinds_and_not_copies() -> None:
    texts = [text for n in range(60) for text in (f"add {n} and 1", f"sing song {n}")]
    scores = np.array([[1.0, 1.0], [0.0, 1.0]] * 60)
    assert find_clusters(texts, scores=scores).are_rows


def test_inputs_of_numbers_alone_stay_apart() -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"{value:.2f}" for value in rng.normal(size=6)) for _ in range(80)]
    assert find_clusters(texts, scores=outcomes(80)).are_rows


def test_turns_of_a_conversation_are_linked_and_requests_without_one_are_not() -> None:
    talks = ["c1", "c1", "", "", "c2", "c1"]
    found = find_clusters(prompts(6), conversations=talks)
    assert partition(found.codes) == {
        frozenset({0, 1, 5}),
        frozenset({2}),
        frozenset({3}),
        frozenset({4}),
    }
    assert "conversation" in str(found.sentence)


def test_groups_are_clusters_if_their_rows_share_outcomes_or_on_request() -> None:
    families = np.repeat(np.arange(30), 4).astype(str)
    alike, own = np.repeat(outcomes(30), 4, axis=0), outcomes(120)
    texts = prompts(120)
    assert len(find_clusters(texts, families, scores=alike)) == 30
    kinds = find_clusters(texts, families, scores=own)
    assert len(kinds) == 120
    assert kinds.kinds is not None
    assert kinds.kinds.max() == 29
    asked = find_clusters(texts, families, scores=own, whole_groups=True)
    assert len(asked) == 30
    assert asked.kinds is None


def test_many_groups_are_clusters_whatever_their_outcomes() -> None:
    users = np.repeat(np.arange(220), 2).astype(str)
    assert len(find_clusters(prompts(440), users, scores=outcomes(440))) == 220


def test_links_are_transitive() -> None:
    found = find_clusters(["a b", "a b", "c d", "e f"], conversations=["x", "y", "y", ""])
    assert found.codes.tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_components_are_those_of_a_slow_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left, right = (rng.integers(0, 12, 25) for _ in range(2))
    slow = np.arange(25)
    for _ in range(25):
        for row in range(25):
            same = (left == left[row]) | (right == right[row])
            slow[same] = slow[same].min()
    assert partition(link(left, right)) == partition(slow)


def test_similarity_is_the_intraclass_correlation() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(2000), 4)
    for share in (0.0, 0.3, 0.8):
        between = rng.normal(size=(2000, 2))[codes] * np.sqrt(share)
        scores = between + rng.normal(size=(8000, 2)) * np.sqrt(1 - share)
        assert outcome_similarity(codes, scores) == pytest.approx(share, abs=0.04)
    assert outcome_similarity(np.arange(10), rng.normal(size=(10, 2))) == 0.0
    assert outcome_similarity(codes, np.ones((8000, 2))) == 0.0


def test_scores_that_are_unknown_are_no_evidence() -> None:
    families = np.repeat(np.arange(30), 4).astype(str)
    scores = np.repeat(outcomes(30), 4, axis=0)
    scores[np.random.default_rng(0).random(scores.shape) < 0.4] = np.nan
    assert len(find_clusters(prompts(120), families, scores=scores)) == 30
    assert find_clusters(prompts(120), families, scores=np.full((120, 3), np.nan)).kinds is not None


@pytest.mark.parametrize("text", ["", " ", "???", "\ud83d\ude00", "x", "\u4f60\u597d", "0"])
def test_odd_texts_are_prompts_like_others(text: str) -> None:
    found = find_clusters([text, "some other prompt", text])
    assert found.codes.tolist() == [0, 1, 0]


def test_more_prompts_than_are_compared_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mildroute.costs.near_duplicates._MAX_ROWS", 10)
    assert "near-duplicates are not searched for" in find_clusters(prompts(20)).notes[0]


def test_a_split_keeps_clusters_on_one_side() -> None:
    bare = prompts(60)
    rows = np.repeat(np.arange(60), 3)
    scores = outcomes(60)[rows]
    columns = {f"score:{name}": scores[:, place] for place, name in enumerate("abc")}
    texts = [f"{bare[row]} ticket {7 * place}" for place, row in enumerate(rows)]
    table = CostTable.from_data({"input": texts, **columns})
    train, test = table.split(0.3, seed=1)
    sides = [{int(name) // 3 for name in side.query_ids} for side in (train, test)]
    assert not sides[0] & sides[1]
    assert table.clusters.sentence == (
        "180 rows are 60 different prompts; everything is cross-validated by prompt"
    )


@pytest.mark.parametrize("names", [("7FKQ2ZP9", "B7", "9QX41K"), ("A-1042", "A-77", "A-9b")])
def test_prompts_that_differ_in_an_id_of_letters_and_digits_are_one(names: tuple[str, ...]) -> None:
    topics = ["parcel", "refund", "invoice", "login", "size", "color", "gift", "card", "box", "tax"]
    texts = [f"Order {name}: about my {topic}?" for topic in topics for name in names]
    assert find_clusters(texts).codes.tolist() == np.repeat(np.arange(10), 3).tolist()


def test_copies_show_in_one_expert_beside_noisy_ones() -> None:
    rng = np.random.default_rng(0)
    template = np.repeat(np.arange(40), 20)
    topics = prompts(40)
    texts = [f"ticket {row} topic {topics[code]}" for row, code in enumerate(template)]
    copied = (rng.random(40) < 0.86)[template].astype(float)
    noise = (rng.random((800, 4)) < (0.95, 0.5, 0.5, 0.5)).astype(float)
    assert len(find_clusters(texts, scores=np.column_stack([copied, noise]))) == 40
    assert len(find_clusters(texts, scores=noise)) == 800
