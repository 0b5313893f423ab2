"""HTTP/2 where a server offers it.

One connection for all calls, no key in the logs, and no connection that starves.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from mildroute.experts.base import Query
from mildroute.experts.openai import OpenAIExpert
from mildroute.experts.secrets import Secret
from mildroute.experts.settings import CallSettings, ModelSettings, Timeouts
from tests.experts.asking import ask, endpoint
from tests.experts.http2_server import Http2Server, make_certificate

KEY = "sk-live-0123456789abcdefghij"

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="a certificate is made by openssl"
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def certificate(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    return files


def test_calls_share_one_connection_once_the_server_speaks_http2(
    certificate: tuple[Path, Path],
) -> None:
    async def run(expert: OpenAIExpert) -> list[str | None]:
        texts = [(await expert.answer([Query("first", "?")]))[0].text]
        texts += [
            answer.text
            for answer in await expert.answer([Query(f"q{number}", "?") for number in range(30)])
        ]
        await expert.close()
        return texts

    with Http2Server(*certificate) as server:
        assert asyncio.run(run(endpoint(server.url))) == ["x"] * 31
        assert server.connections == 1
        assert server.headers[0][":method"] == "POST"


def test_no_log_holds_the_key(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Http2Server(*certificate) as server:
        answer = ask(endpoint(server.url, secret=Secret("TINY_KEY", {"TINY_KEY": KEY})))[0]
        assert answer.text == "x"
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    mine = [record for record in caplog.records if record.name.startswith(("httpx", "httpcore"))]
    assert any("x-echo" in record.getMessage() for record in mine)
    # the server's own half of hpack is in this process, too: what it decodes is silenced as well
    # while the endpoint is open
    assert KEY not in caplog.text
    assert KEY not in repr([vars(record) for record in caplog.records])


def test_calls_that_were_given_up_do_not_starve_the_connection(
    certificate: tuple[Path, Path],
) -> None:
    """Their answers arrive later and are never acknowledged, so a connection that goes on would run
    out of window.
    """

    async def run(server: Http2Server) -> list[str]:
        calls = CallSettings(timeouts=Timeouts(60.0), largest=1000)
        expert = OpenAIExpert("small", ModelSettings(server.url, "tiny"), calls)
        errors = [(await expert.answer([Query("q", "?")]))[0].error for _ in range(5)]
        await expert.close()
        return errors

    with Http2Server(*certificate, size=40_000) as server:
        assert (
            asyncio.run(run(server))
            == ["the answer is longer than the 1,000 bytes that are read"] * 5
        )
        assert server.connections == 5


def test_one_slow_call_takes_no_other_with_it(certificate: tuple[Path, Path]) -> None:
    async def run(server: Http2Server) -> list[str | None]:
        expert = endpoint(server.url, total=1.0, retries=0)
        first = (await expert.answer([Query("first", "?")]))[0].text
        others = await expert.answer([Query(f"q{number}", "?") for number in range(4)])
        last = (await expert.answer([Query("last", "?")]))[0].text
        await expert.close()
        return [first, *(answer.text for answer in others), last]

    with Http2Server(*certificate, delay=lambda number: 60.0 if number == 2 else 0.0) as server:
        texts = asyncio.run(run(server))
    assert texts.count(None) == 1
    assert texts[0] == texts[-1] == "x"


def test_a_certificate_that_nobody_vouches_for_is_no_connection(files: tuple[Path, Path]) -> None:
    with Http2Server(*files) as server:
        answer = ask(endpoint(server.url, retries=0))[0]
    assert answer.error.startswith("no connection: ")
    assert server.headers == []
