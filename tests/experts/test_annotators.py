from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.annotators import AnnotatorExpert
from mildroute.experts.base import Answer, Expert, Query


def answer_of(people: AnnotatorExpert, held: Any, query_id: str = "q1") -> Answer:
    return asyncio.run(people.answer([Query(query_id, "?", fields={"labels": held})]))[0]


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ("cat", "cat"), (3, "3"), (3.0, "3"), (["cat", "dog", "cat"], "cat"), (("cat",), "cat"),
        ({"cat": 1, "dog": 2}, "dog"), ([None, "dog", float("nan")], "dog"),
        ({"cat": None, "dog": 1}, "dog"), ({"cat": 0, "dog": 1}, "dog"),
        (np.array([1, 1, 2]), "1"), (np.int64(4), "4"), ([1, 1.0, 2], "1"),
    ],
)  # fmt: skip
def test_most_votes_win(held: Any, text: str) -> None:
    assert answer_of(AnnotatorExpert("crowd", "labels", dollars=0.08), held) == Answer(
        text, dollars=0.08
    )


@pytest.mark.parametrize("held", [None, [], {}, [None], {"cat": 0}, float("nan")])
def test_no_vote_is_an_error_that_costs_nothing(held: Any) -> None:
    answer = answer_of(AnnotatorExpert("crowd", "labels", dollars=0.08), held)
    assert (answer.text, answer.error, answer.dollars) == (
        None,
        "the query has no label in its field 'labels'",
        0,
    )


@pytest.mark.parametrize(
    "held",
    [[["cat"]], {"cat": "dog"}, {"cat": -1}, {"cat": 1.5}, {"cat": True}, object(), {"cat": 10**9}],
)
def test_what_is_no_vote_is_an_error(held: Any) -> None:
    assert "holds no label" in answer_of(AnnotatorExpert("crowd", "labels"), held).error


def test_ties_are_broken_by_lot_and_the_same_way_every_time() -> None:
    crowd = AnnotatorExpert("crowd", "labels")
    drawn = [answer_of(crowd, ["b", "a"], f"q{number}").text for number in range(400)]
    # 400 fair coins: 200 heads with a standard deviation of 10
    assert 150 < Counter(drawn)["a"] < 250
    assert drawn == [
        answer_of(AnnotatorExpert("other", "labels"), {"a": 1, "b": 1}, f"q{number}").text
        for number in range(400)
    ]
    assert drawn != [
        answer_of(AnnotatorExpert("crowd", "labels", seed=1), ["a", "b"], f"q{number}").text
        for number in range(400)
    ]


def test_a_single_person_is_drawn_as_often_as_there_are_votes() -> None:
    one = AnnotatorExpert("one", "labels", votes="single")
    drawn = Counter(answer_of(one, {"a": 3, "b": 1}, f"q{number}").text for number in range(400))
    # 100 of 400 with a standard deviation of 8.7
    assert 55 < drawn["b"] < 145


def test_versions_tell_rules_apart() -> None:
    versions = [
        AnnotatorExpert("a", "labels"),
        AnnotatorExpert("a", "other"),
        AnnotatorExpert("a", "labels", votes="single"),
        AnnotatorExpert("a", "labels", seed=1),
    ]
    versions += [
        AnnotatorExpert("a", "labels", dollars=0.1),
        AnnotatorExpert("a", "labels", version="2"),
    ]
    assert len({people.version for people in versions}) == 6
    assert AnnotatorExpert("b", "labels").version == versions[0].version
    assert isinstance(versions[0], Expert)
    assert versions[4].max_cost(Query("q", "?")) == 0.1


def test_rules_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ArgumentError, match="votes must be"):
        AnnotatorExpert("a", "labels", votes="all")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="dollars of an answer"):
        AnnotatorExpert("a", "labels", dollars=-1)
