"""Scores worked out by hand."""

import asyncio

import pytest
from mildroute.experts import Query
from mildroute.judges import Judge
from mildroute_plugin_token_f1 import TokenF1


def score(reference: str | None, text: str, **settings: float) -> float | None:
    judge = TokenF1(**settings)  # type: ignore[arg-type]
    assert isinstance(judge, Judge)
    return asyncio.run(judge.judge(Query("q1", "Who wrote it?", reference), text)).score


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the Jane Austen", 1.0),  # case and articles do not count
        ("It was Jane Austen, in 1813", 4 / 8),  # 2 shared words, 2 wanted, 6 given
        ("Emily Brontë", 0.0),
        ("", 0.0),
    ],
)
def test_shared_words_count(text: str, wanted: float) -> None:
    assert score("jane austen", text) == pytest.approx(wanted)


def test_below_the_least_score_an_answer_is_wrong() -> None:
    assert score("jane austen", "It was Jane Austen, in 1813", least=0.6) == 0.0


def test_without_a_reference_the_judge_cannot_tell() -> None:
    assert score(None, "Jane Austen") is None
    assert score("the", "Jane Austen") is None


def test_the_version_follows_the_settings() -> None:
    assert TokenF1().version == TokenF1(name="other").version != TokenF1(least=0.5).version
