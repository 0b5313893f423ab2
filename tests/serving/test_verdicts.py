from __future__ import annotations

import pytest

from mildroute.serving.passing import Header, passed_back, passed_on
from mildroute.serving.verdicts import flaw_of

JSON: Header = (b"content-type", b"application/json; charset=utf-8")


@pytest.mark.parametrize(
    ("status", "flaw"),
    [
        (100, "malformed"),
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
        (429, "rate"),
        (499, ""),
        (500, "5xx"),
        (529, "5xx"),
        (600, "malformed"),
    ],
)
def test_each_status_has_its_meaning(status: int, flaw: str) -> None:
    assert flaw_of(status, [JSON], b"{}", is_whole=True) == flaw


@pytest.mark.parametrize(
    ("headers", "body", "flaw"),
    [
        ([JSON], b' {"a": 1}\n', ""),
        ([JSON], b"[1]", ""),
        ([JSON], b'{"a": "b', "malformed"),
        ([JSON], b"", "malformed"),
        ([JSON], b"<html>", "malformed"),
        ([JSON, (b"content-encoding", b"gzip")], b"\x1f\x8b", ""),
        ([(b"content-encoding", b"gzip"), JSON], b"\x1f\x8b", ""),
        ([(b"content-type", b"text/event-stream")], b"data: {", ""),
        ([(b"content-type", b"text/event-stream")], b"", "malformed"),
        ([], b"anything", ""),
    ],
)
def test_an_answer_must_look_whole(headers: list[Header], body: bytes, flaw: str) -> None:
    assert flaw_of(200, headers, body, is_whole=True) == flaw
    assert flaw_of(200, headers, body, is_whole=False) == ""


def test_headers_that_would_end_a_line_are_not_passed_in_either_direction() -> None:
    bad = [(b"x-request-id", b"a\r\nauthorization: Bearer x"), (b"accept", b"a\nb"), (b"traceparent", b"a\x00")]
    assert passed_on([(b"x-request-id", b"x" * 10_000)]) == b"content-type: application/json\r\n"
    assert passed_on(bad) == b"content-type: application/json\r\n"
    assert passed_back([(b"x-request-id", b"a\r\nset-cookie: x")]) == []
