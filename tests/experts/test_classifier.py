from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.classifier import ClassifierExpert


def length_of(*, offset: int = 0) -> Any:
    """What an import path may name: a function that makes a classifier."""
    return lambda texts: [len(text) + offset for text in texts]


def ask(expert: ClassifierExpert, *queries: Query) -> list[Answer]:
    return asyncio.run(expert.answer(queries))


def texts_of(expert: ClassifierExpert, inputs: Sequence[str]) -> list[str | None]:
    return [
        answer.text
        for answer in ask(
            expert, *(Query(f"q{number}", text) for number, text in enumerate(inputs))
        )
    ]


def test_vectors_of_a_field_go_to_a_fitted_model() -> None:
    model = LogisticRegression().fit(
        np.array([[0.0], [1.0], [0.0], [1.0]]), ["low", "high", "low", "high"]
    )
    expert = ClassifierExpert("linear", model, version="1", field="vector", dollars=0.01)
    found = ask(
        expert,
        *(
            Query(f"q{number}", "", fields={"vector": [value]})
            for number, value in enumerate([0.0, 1.0])
        ),
    )
    assert [(answer.text, answer.dollars, answer.attempts) for answer in found] == [
        ("low", 0.01, 1),
        ("high", 0.01, 1),
    ]
    assert isinstance(expert, Expert)
    assert expert.max_cost(Query("q", "")) == 0.01


def test_a_function_from_texts_to_labels_is_a_classifier() -> None:
    assert texts_of(ClassifierExpert("length", length_of(), version="1"), ["a", "bcd", ""]) == [
        "1",
        "3",
        "0",
    ]


def test_one_bad_input_spoils_no_other_answer() -> None:
    def fussy(texts: list[str]) -> list[str]:
        if "bad" in texts:
            raise ValueError("I do not\nlike 'bad'")
        return texts

    found = ask(
        ClassifierExpert("fussy", fussy, version="1"),
        Query("a", "good"),
        Query("b", "bad"),
        Query("c", "fine"),
    )
    assert [answer.text for answer in found] == ["good", None, "fine"]
    assert found[1].error == "the classifier failed: ValueError: I do not like 'bad'"


@pytest.mark.parametrize("vector", [None, "text", [], [[1.0]], [None], ["x"], {"a": 1}])
def test_a_query_without_a_vector_is_an_error_of_its_own(vector: Any) -> None:
    expert = ClassifierExpert("sign", lambda rows: np.sign(rows[:, 0]), version="1", field="vector")
    bad, good = ask(
        expert, Query("a", "", fields={"vector": vector}), Query("b", "", fields={"vector": [2.0]})
    )
    assert good.text == "1"
    assert bad.text is None
    assert bad.error
    assert bad.dollars == 0


def test_vectors_of_different_lengths_are_asked_one_by_one() -> None:
    expert = ClassifierExpert("sum", lambda rows: rows.sum(axis=1), version="1", field="v")
    found = ask(
        expert, Query("a", "", fields={"v": [1, 2]}), Query("b", "", fields={"v": [1, 2, 3]})
    )
    assert [answer.text for answer in found] == ["3", "6"]


@pytest.mark.parametrize(
    "labels", [[], ["a", "b"], None, 7, [["a"]], [None], [float("nan")], [b"a"], [{"label": "a"}]]
)
def test_what_is_no_label_is_an_error(labels: Any) -> None:
    (answer,) = ask(ClassifierExpert("odd", lambda _: labels, version="1"), Query("a", "x"))
    assert answer.text is None
    assert answer.error.startswith("the classifier")


def test_the_event_loop_goes_on_while_a_model_thinks() -> None:
    thinking, done = threading.Event(), threading.Event()

    def think(texts: list[str]) -> list[str]:
        thinking.set()
        done.wait(5)
        return texts

    async def run() -> list[Answer]:
        asking = asyncio.create_task(
            ClassifierExpert("slow", think, version="1").answer([Query("a", "x")])
        )
        while not thinking.is_set():
            await asyncio.sleep(0.001)
        done.set()
        return await asking

    assert asyncio.run(run())[0].text == "x"


def test_no_queries_are_no_work() -> None:
    assert ask(ClassifierExpert("length", length_of(), version="1")) == []


def test_a_path_names_the_function_that_makes_the_model() -> None:
    path = f"{__name__}:length_of"
    expert = ClassifierExpert.from_path("length", path, arguments={"offset": 10}, batch_size=7)
    assert texts_of(expert, ["a"]) == ["11"]
    assert (expert.batch_size, expert.concurrency) == (7, 1)
    versions = {
        ClassifierExpert.from_path("length", path).version,
        expert.version,
        ClassifierExpert.from_path("length", path, dollars=0.1).version,
        ClassifierExpert.from_path("length", path, version="may").version,
    }
    assert len(versions) == 4


def test_what_cannot_predict_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must have predict or be a function"):
        ClassifierExpert("none", 7, version="1")
    with pytest.raises(ArgumentError, match="batch_size"):
        ClassifierExpert("none", str, version="1", batch_size=0)
