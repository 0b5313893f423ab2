"""Operating points in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mildroute.fitting.descriptions import only_expert, saving_words, split_words
from mildroute.routers.frontier.operating_point import OperatingPoint, Vertex

NAMES = ["large", "small"]
POINT = OperatingPoint(
    vertices=(Vertex(20.0, None, 0.998), Vertex(20.0, 0, 0.002)),
    dollars_per_1000=1.92,
    dollars_interval=(1.4, 2.42),
    score=0.776,
    score_interval=(0.75, 0.8),
    shares=(0.4, 0.6),
    saved=0.38,
    saved_interval=(0.22, 0.55),
    baseline=0,
    baseline_dollars_per_1000=3.1,
    kept_interval=(0.94, 1.0),
    best=0,
    best_score=0.8,
    best_dollars_per_1000=3.1,
    confidence=0.95,
)


def test_savings_are_named_against_the_best_by_score() -> None:
    assert (
        saving_words(POINT, NAMES)
        == "saves 38% [22, 55] of the bill of large, keeps 97.0% [94.0, 100.0] of its score: $1.92"
        " instead of $3.10 per 1,000 queries"
    )


def test_a_more_expensive_point_is_not_called_a_saving() -> None:
    dear = replace(
        POINT, saved=-0.1, saved_interval=(-0.2, -0.05), dollars_per_1000=3.41, score=0.84
    )
    assert (
        saving_words(dear, NAMES)
        == "costs 10% [5, 20] more than large, has 105.0% [94.0, 100.0] of its score: $3.41"
        " instead of $3.10 per 1,000 queries"
    )
    assert saving_words(replace(POINT, saved=0.001, saved_interval=(0.0, 0.002)), NAMES).startswith(
        "costs as much as large, keeps 97.0% [94.0, 100.0] of its score: "
    )


def test_shares_of_a_coin_add_up_and_none_is_shown_as_nothing() -> None:
    assert (
        split_words(POINT, NAMES)
        == "makes a 99/1 random split between the router at price weight 20 and large"
    )


@pytest.mark.parametrize(
    ("vertex", "words"),
    [
        (Vertex(20.0, None, 1.0), "decides each request itself (price weight 20)"),
        (Vertex(0.0, 1, 1.0), "sends all to small"),
    ],
)
def test_one_vertex_needs_no_coin(vertex: Vertex, words: str) -> None:
    assert split_words(replace(POINT, vertices=(vertex,)), NAMES) == words


def test_the_name_of_a_look_is_quoted_since_it_is_a_sentence() -> None:
    names = ["large", "small, then decide at 24"]
    point = replace(POINT, vertices=(Vertex(0.0, 1, 1.0),))
    assert split_words(point, names, looks=1) == "sends all to 'small, then decide at 24'"
    assert split_words(point, names) == "sends all to small, then decide at 24"


def test_the_only_expert() -> None:
    assert only_expert(POINT) is None
    assert only_expert(replace(POINT, shares=(0.0, 1.0))) == 1


def test_where_nothing_can_be_kept_or_saved_no_share_is_named() -> None:
    free = replace(POINT, dollars_per_1000=0.0, baseline_dollars_per_1000=0.0, saved=0.0)
    assert saving_words(free, NAMES) == (
        "costs nothing, while large costs nothing, and has 97.0% [94.0, 100.0] of its score"
    )
    paid = replace(POINT, baseline_dollars_per_1000=0.0, saved=float("-inf"))
    assert saving_words(paid, NAMES) == (
        "costs $1.92 per 1,000 queries, while large costs nothing, and has 97.0% [94.0, 100.0] of"
        " its score"
    )
    useless = replace(POINT, score=0.0, best_score=0.0)
    assert saving_words(useless, NAMES) == (
        "saves 38% [22, 55] of the bill of large, has a score of 0.00: $1.92 instead of $3.10 per"
        " 1,000 queries"
    )


def test_another_baseline_is_named_beside_the_best_expert() -> None:
    words = saving_words(replace(POINT, baseline=1, baseline_dollars_per_1000=4.0), NAMES)
    assert words.startswith("saves 38% [22, 55] of the bill of small, keeps 97.0% [94.0, 100.0] of")
    assert "of the score of large, the best in the table: $1.92 instead of $4.00" in words
