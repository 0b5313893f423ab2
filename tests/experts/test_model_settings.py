from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mildroute._fingerprint import fingerprint
from mildroute.costs.prices import Price
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.experts.prompts import PromptTemplate
from mildroute.experts.settings import ModelSettings

URL = "https://api.example.com/v1"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ftp://host/v1", "http:// or https://"),
        ("file:///etc/passwd", "http:// or https://"),
        ("host/v1", "http:// or https://"),
        ("https://", "http:// or https://"),
        ("http://host:0/v1", "http:// or https://"),
        ("http://host:99999/v1", "valid address"),
        ("http://[::1/v1", "valid address"),
        ("https://me:hunter2@host/v1", "no user"),
        ("https://hunter2@host/v1", "no user"),
        ("https://host/v1?key=hunter2", "no user"),
        ("https://host/v1#hunter2", "no user"),
        ("https://ho st/v1", "without spaces"),
        ("https://host/v1\n", "without spaces"),
        (7, "string"),
    ],
)
def test_an_address_must_be_http_and_hold_no_key(url: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said) as caught:
        ModelSettings(url, "tiny")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "request_",
    [
        {"model": "x"}, {"messages": []}, {"prompt": ""}, {"stream": True}, {"stream": False},
        {"n": 2}, {"best_of": 3}, {"temperature": math.nan}, {"x": object()}, {1: 2}, [],
        {"max_tokens": 0}, {"max_tokens": "64"}, {"max_completion_tokens": 1.5},
    ],
)  # fmt: skip
def test_a_request_that_we_set_or_cannot_send_is_refused(request_: Any) -> None:
    with pytest.raises(ArgumentError):
        ModelSettings(URL, "tiny", request=request_)


@pytest.mark.parametrize("model", ["", " ", 4.1, None])
def test_a_model_has_a_name(model: Any) -> None:
    with pytest.raises(ArgumentError, match="name of a model"):
        ModelSettings(URL, model)


@pytest.mark.parametrize(
    ("settings", "tokens_out"),
    [
        ({"request": {"max_tokens": 50}}, 50),
        ({"request": {"max_completion_tokens": 70}}, 70),
        ({"request": {"max_tokens": 50, "max_completion_tokens": 70}, "context": 9}, 70),
        ({"context": 900}, 900),
        ({"request": {"max_tokens": None}, "context": 900}, 900),
        ({}, math.inf),
    ],
)
def test_the_worst_price_of_an_attempt_is_bounded_by_its_bytes_and_its_longest_answer(
    settings: dict[str, Any], tokens_out: float
) -> None:
    model = ModelSettings(URL, "tiny", price=Price(2.0, 4.0), **settings)
    assert model.max_cost(b"x" * 744) == pytest.approx((2 * 1000 + 4 * tokens_out) / 1e6)


def test_an_answer_without_bound_costs_nothing_where_answers_are_free() -> None:
    assert ModelSettings(URL, "tiny").max_cost(b"x") == 0
    assert ModelSettings(URL, "tiny", price=Price(1.0, 0.0)).max_cost(b"x" * 744) == pytest.approx(
        0.001
    )


def test_bytes_of_the_request_bound_the_bytes_of_the_text() -> None:
    text = "漢字 \U0001f600 é" * 20
    assert len(ModelSettings(URL, "tiny").body(Query("q", text))) >= len(text.encode())


def test_a_version_is_the_same_on_every_machine_and_for_equal_settings() -> None:
    assert fingerprint("openai", {"a": [1.0, {"b": None, "c": "é"}]}) == fingerprint(
        "openai", {"a": [1, {"c": "é", "b": None}]}
    )
    # SHA-256 of 'mildroute expert 1\n["people", "", {"seed": 1}]'
    assert fingerprint("people", {"seed": 1}) == "84c6d9e440ec"
    assert (
        len(
            {
                fingerprint("a", {}),
                fingerprint("b", {}),
                fingerprint("a", {}, version="1"),
                fingerprint("a", {"x": 1}),
            }
        )
        == 4
    )
    with pytest.raises(ArgumentError, match="JSON"):
        fingerprint("a", {"x": math.inf})


def test_log_probabilities_are_asked_for_and_are_no_part_of_the_version() -> None:
    plain = ModelSettings("http://127.0.0.1:8080/v1", "m")
    asking = ModelSettings("http://127.0.0.1:8080/v1", "m", logprobs=True)
    assert json.loads(asking.body(Query("q1", "Hi"))) == {
        **json.loads(plain.body(Query("q1", "Hi"))),
        "logprobs": True,
    }
    assert asking.fingerprint == plain.fingerprint
    with pytest.raises(ArgumentError, match="logprobs must be false for a raw prompt"):
        ModelSettings("http://127.0.0.1:8080/v1", "m", PromptTemplate(raw="{input}"), logprobs=True)
