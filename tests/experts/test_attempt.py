from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from mildroute.experts._attempt import classify_attempt
from mildroute.experts.base import HTTPResult, TransportFailure


@given(st.binary())
def test_no_body_raises(body: bytes) -> None:
    for status in (200, 302, 400, 429, 500):
        outcome = classify_attempt(HTTPResult(status, body), str, now=0.0)
        assert outcome.completion is not None or outcome.error


@pytest.mark.parametrize(
    ("result", "retry", "doubtful"),
    [
        (HTTPResult(429, b""), "after refusal", False),
        (HTTPResult(503, b"", retry_after="3"), "after refusal", False),
        (HTTPResult(529, b"", retry_after="3"), "after refusal", False),
        (HTTPResult(503, b""), "after failure", False),
        (HTTPResult(500, b""), "after failure", False),
        (HTTPResult(502, b""), "after failure", True),
        (HTTPResult(504, b""), "after failure", True),
        (HTTPResult(524, b""), "after failure", True),
        (HTTPResult(408, b""), "after failure", True),
        (HTTPResult(409, b""), "after failure", False),
        (HTTPResult(400, b""), "never", False),
        (HTTPResult(301, b"", location="https://example.com"), "never", False),
        (HTTPResult(200, b"{"), "after failure", True),
        (HTTPResult(200, b"{}"), "never", True),
        (HTTPResult(200, b"{}", cut=True), "never", True),
        (TransportFailure("no connection", sent=False), "after failure", False),
        (TransportFailure("timeout", sent=True), "after failure", True),
        (TransportFailure("closed", sent=True, final=True), "never", True),
    ],
)
def test_what_is_retried_and_what_may_have_been_charged(
    result: HTTPResult | TransportFailure, retry: str, doubtful: bool
) -> None:
    outcome = classify_attempt(result, str, now=0.0)
    assert (outcome.retry, outcome.doubtful) == (retry, doubtful)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('{"error": {"message": "no"}}', "no"),
        ('{"error": "no"}', "no"),
        ('{"message": "no"}', "no"),
        ('{"detail": "no"}', "no"),
        ('{"detail": [{"msg": "no"}]}', '{"detail": [{"msg": "no"}]}'),
        ("", "(empty)"),
        ("a\n\n b\x1b[31m\tc", "a b [31m c"),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_the_servers_own_words_are_shown_on_one_short_line(body: str, said: str) -> None:
    assert (
        classify_attempt(HTTPResult(400, body.encode()), str, now=0.0).error == f"HTTP 400: {said}"
    )


def test_numbers_that_python_refuses_to_parse_are_a_broken_body() -> None:
    body = json.dumps({"usage": 1}).replace("1", "1" * 10_000).encode()
    assert classify_attempt(HTTPResult(200, body), str, now=0.0).retry == "after failure"
