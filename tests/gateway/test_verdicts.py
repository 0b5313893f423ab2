from __future__ import annotations

import pytest

from mildroute.gateway.http.headers import Header, forward_request_headers, forward_response_headers
from mildroute.gateway.upstream.classification import classify_response

JSON: Header = (b"content-type", b"application/json; charset=utf-8")


@pytest.mark.parametrize(
    ("status", "failure_reason"),
    [
        (100, "invalid_response"),
        (200, ""),
        (201, ""),
        (302, "redirect"),
        (400, ""),
        (401, "misconfigured"),
        (402, "misconfigured"),
        (403, "misconfigured"),
        (404, "misconfigured"),
        (405, "misconfigured"),
        (408, "timeout"),
        (409, ""),
        (413, ""),
        (422, ""),
        (429, "rate_limited"),
        (499, ""),
        (500, "5xx"),
        (529, "5xx"),
        (600, "invalid_response"),
    ],
)
def test_each_status_has_its_meaning(status: int, failure_reason: str) -> None:
    assert classify_response(status, [JSON], b"{}", is_complete=True) == failure_reason


@pytest.mark.parametrize(
    ("headers", "body", "failure_reason"),
    [
        ([JSON], b' {"a": 1}\n', ""),
        ([JSON], b"[1]", ""),
        ([JSON], b'{"a": "b', "invalid_response"),
        ([JSON], b"", "invalid_response"),
        ([JSON], b"<html>", "invalid_response"),
        ([JSON, (b"content-encoding", b"gzip")], b"\x1f\x8b", ""),
        ([(b"content-encoding", b"gzip"), JSON], b"\x1f\x8b", ""),
        ([(b"content-type", b"text/event-stream")], b"data: {", ""),
        ([(b"content-type", b"text/event-stream")], b"", "invalid_response"),
        ([], b"anything", ""),
    ],
)
def test_an_answer_must_look_whole(headers: list[Header], body: bytes, failure_reason: str) -> None:
    assert classify_response(200, headers, body, is_complete=True) == failure_reason
    assert classify_response(200, headers, body, is_complete=False) == ""


def test_headers_that_would_end_a_line_are_not_passed_in_either_direction() -> None:
    bad = [
        (b"x-request-id", b"a\r\nauthorization: Bearer x"),
        (b"accept", b"a\nb"),
        (b"traceparent", b"a\x00"),
    ]
    assert forward_request_headers([(b"x-request-id", b"x" * 10_000)]) == []
    assert forward_request_headers(bad) == []
    assert forward_response_headers([(b"x-request-id", b"a\r\nset-cookie: x")]) == []
