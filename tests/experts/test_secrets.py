"""A key is used and never shown."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import traceback
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.openai import OpenAIExpert
from mildroute.experts.secrets import (
    RequestHeaders,
    Secret,
    validate_headers,
    validate_variable,
)
from mildroute.experts.settings import ModelSettings
from tests.experts.asking import QUERY, ask, endpoint
from tests.experts.hostile_server import Behavior, HostileServer, echoes, hangs, says, sends, status

KEY = "sk-live-0123456789abcdefghij"


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv("TINY_KEY", KEY)
    return Secret("TINY_KEY")


def test_it_is_sent(secret: Secret) -> None:
    with HostileServer([says("4")]) as server:
        assert ask(endpoint(server.url, secret=secret))[0].text == "4"
    assert server.calls[0].headers["authorization"] == f"Bearer {KEY}"


def test_no_way_to_show_it_shows_it(secret: Secret) -> None:
    expert = endpoint("http://127.0.0.1:1/v1", secret=secret)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!s:>40}",
        repr(secret.bearer()),
        str(secret.bearer()),
        f"{secret.bearer()!r}",
    ]
    shown += [
        repr(expert),
        str(expert),
        repr(vars(expert)),
        expert.version,
        repr(pickle.dumps(secret)),
        repr([secret]),
    ]
    shown += [
        repr({name: getattr(secret, name) for name in Secret.__slots__ if name != "_pattern"})
    ]
    assert all(KEY not in text for text in shown)
    with pytest.raises(ArgumentError, match="never stored"):
        secret.__getstate__()
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_pickled_it_is_the_name_of_its_variable(
    secret: Secret, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = pickle.dumps(secret)
    assert pickle.loads(stored).bearer() == secret.bearer()  # noqa: S301
    assert copy.deepcopy(secret) is copy.copy(secret) is secret
    monkeypatch.delenv("TINY_KEY")
    with pytest.raises(ArgumentError, match="TINY_KEY must hold the key, got nothing"):
        pickle.loads(stored)  # noqa: S301


@pytest.mark.parametrize("value", ["", "   ", "two words", "ключ", "line\nbreak", "x" * 5000])
def test_what_cannot_be_a_key_is_refused_and_not_shown(value: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Secret("TINY_KEY", {"TINY_KEY": value})
    assert not value.strip() or value not in str(caught.value)


def test_spaces_around_a_key_are_no_part_of_it() -> None:
    assert Secret("TINY_KEY", {"TINY_KEY": f" {KEY}\n"}).bearer() == f"Bearer {KEY}".encode()


@pytest.mark.parametrize(
    "name", [KEY, "lower_case", "A-B", "", "1A", "A" * 200, 7, None, "0123ABCDEF0123ABCDEF"]
)
def test_a_variable_that_may_be_the_key_itself_is_refused_and_not_shown(name: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        validate_variable(name)
    assert not name or str(name) not in str(caught.value)


def echo_of_the_key(code: int) -> list[bytes]:
    spellings = [
        KEY,
        KEY.upper(),
        f"Bearer {KEY}",
        f'{{"error": {{"message": "bad key {KEY}"}}}}',
        f"{'x' * 190}{KEY}",
        f"{KEY}\n{KEY}",
    ]
    return [
        f"HTTP/1.1 {code} X\r\nConnection: close\r\nX-Key: {KEY}\r\nLocation:"
        f" /?key={KEY}\r\n\r\n{text}".encode()
        for text in spellings
    ]


@pytest.mark.parametrize(
    "raw", [raw for code in (200, 307, 401, 500) for raw in echo_of_the_key(code)]
)
def test_a_server_that_repeats_it_gets_it_into_no_error_and_no_log(
    raw: bytes, secret: Secret, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with HostileServer([sends(raw)]) as server:
        answer = ask(endpoint(server.url, secret=secret, retries=1))[0]
    assert answer.error
    for shown in (repr(answer), caplog.text, repr([vars(record) for record in caplog.records])):
        assert KEY.lower() not in shown.lower()
        assert KEY[:12] not in shown


def test_it_is_removed_from_an_answer_that_would_be_stored(secret: Secret) -> None:
    with HostileServer([says(f"your key is {KEY}")]) as server:
        assert ask(endpoint(server.url, secret=secret))[0].text == "your key is [secret]"


def test_a_short_key_of_a_local_server_does_not_spoil_answers() -> None:
    with HostileServer([says("none of them")]) as server:
        assert (
            ask(endpoint(server.url, secret=Secret("KEY", {"KEY": "none"})))[0].text
            == "none of them"
        )


@pytest.mark.parametrize("key", ["a'b\\c\"d/e&f<g+0123456789", "%41%42-0123456789abcdef"])
def test_every_spelling_of_it_is_scrubbed(key: str) -> None:
    import html
    from urllib.parse import quote

    secret = Secret("KEY", {"KEY": key})
    for spelling in (
        key,
        repr(key)[1:-1],
        repr(key.encode())[2:-1],
        json.dumps(key)[1:-1],
        quote(key, safe=""),
        html.escape(key),
    ):
        assert secret.scrub(f"<{spelling}>") == "<[secret]>"


def test_an_error_that_was_cut_in_the_middle_of_a_key_shows_no_part_of_it() -> None:
    key = "k0" * 2000
    with HostileServer([status(400, {}, key * 100)]) as server:
        answer = ask(endpoint(server.url, secret=Secret("KEY", {"KEY": key})))[0]
    assert "k0k0" not in answer.error


def frames_of(error: BaseException) -> str:
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


@pytest.mark.parametrize("script", [[hangs()], [echoes()]])
def test_the_traceback_of_a_cancelled_call_shows_it_in_no_local_variable(
    script: list[Behavior], secret: Secret
) -> None:
    async def run(expert: OpenAIExpert, steps: int) -> BaseException | None:
        asking = asyncio.create_task(expert.answer([QUERY]))
        for _ in range(steps):
            await asyncio.sleep(0)
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError as error:
            return error
        finally:
            await expert.close()
        return None

    with HostileServer(script) as server:
        for steps in range(1, 40, 2):
            error = asyncio.run(run(endpoint(server.url, secret=secret), steps))
            assert error is None or KEY not in frames_of(error)


def test_a_timeout_of_the_caller_shows_it_in_no_local_variable(secret: Secret) -> None:
    async def run(expert: OpenAIExpert) -> None:
        try:
            await asyncio.wait_for(expert.answer([QUERY]), 0.05)
        finally:
            await expert.close()

    with HostileServer([hangs()]) as server, pytest.raises(asyncio.TimeoutError) as caught:
        asyncio.run(run(endpoint(server.url, secret=secret)))
    assert KEY not in frames_of(caught.value)


def test_filters_are_gone_when_the_endpoint_is_closed(secret: Secret) -> None:
    before = logging.getLogger("httpcore.http11").filters[:]
    with HostileServer([says("4")]) as server:
        ask(endpoint(server.url, secret=secret))
    assert logging.getLogger("httpcore.http11").filters == before


def test_headers_of_the_environment_are_sent_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OTHER_KEY", KEY)
    headers = {"X-Auth": {"env": "OTHER_KEY", "prefix": "Token "}, "x-team": "sales"}
    with HostileServer([status(401, body=f"no {KEY}"), says(f"it is {KEY}")]) as server:
        model = ModelSettings(server.url, "tiny", query={"api-version": "2024-10-21"})
        refused, answered = (ask(OpenAIExpert("e", model, headers=headers))[0] for _ in range(2))
    assert server.calls[0].path == "/v1/chat/completions?api-version=2024-10-21"
    assert server.calls[0].headers["x-auth"] == f"Token {KEY}"
    assert server.calls[0].headers["x-team"] == "sales"
    assert "authorization" not in server.calls[0].headers
    assert KEY not in f"{refused.error} {answered.text} {caplog.text}"
    assert answered.text == "it is [secret]"
    stored = pickle.dumps(RequestHeaders(headers))
    assert KEY.encode() not in stored
    assert dict(pickle.loads(stored).pairs())[b"x-auth"] == f"Token {KEY}".encode()  # noqa: S301


@pytest.mark.parametrize(
    ("headers", "has_key", "rule"),
    [
        ({"Connection": "close"}, False, "belongs to one connection"),
        ({"Transfer-Encoding": "chunked"}, False, "belongs to one connection"),
        ({"Host": "elsewhere"}, False, "mildroute sets itself"),
        ({"content-length": "3"}, False, "mildroute sets itself"),
        ({"Authorization": {"env": "KEY"}}, True, "together with api_key_env"),
        ({"a b": "c"}, False, "letters, digits and dashes"),
        ({"x": "one", "X": "two"}, False, "given only once"),
        ({"x": "hunter2\r\ny: z"}, False, "printable ASCII"),
        ({"x": {"env": "hunter2"}}, False, "environment variable"),
        ({"x": {"file": "hunter2"}}, False, "must name a variable"),
        ({"x": ""}, False, "must have a value"),
        ("hunter2", False, "must be a mapping"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_and_their_values_not_shown(
    headers: Any, has_key: bool, rule: str
) -> None:
    with pytest.raises(ArgumentError, match=rule) as caught:
        validate_headers(headers, has_key=has_key)
    assert "hunter2" not in str(caught.value)


def test_authorization_may_be_set_where_no_key_is_named() -> None:
    added = {"Authorization": {"env": "K", "prefix": "Basic "}}
    headers = RequestHeaders(added, environment={"K": "dTpw"})
    assert dict(headers.pairs()) == {b"authorization": b"Basic dTpw"}
