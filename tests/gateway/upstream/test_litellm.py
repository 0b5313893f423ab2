"""Calls through an SDK; tests/gateway/test_litellm.py has the real one."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mildroute.experts.config import ExpertSpec
from mildroute.experts.litellm import LiteLLMModel, load_litellm
from mildroute.gateway.upstream.errors import UnsupportedRequest, UpstreamError
from mildroute.gateway.upstream.litellm import LiteLLMUpstream
from tests.gateway.upstream.calls import ask, patience, send

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what comes within moments on a quiet machine, and later on a busy one."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    assert holds()


class _Chunk:
    def __init__(self, **document: Any) -> None:
        self._document = document

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]:
        assert exclude_none
        return self._document

    def model_dump_json(self) -> str:
        return json.dumps(self._document)


class _Stream:
    """Gives its parts, of which an exception is raised; the last one may repeat."""

    def __init__(self, *parts: Any, endless: bool = False) -> None:
        self._parts = list(parts)
        self._endless = endless
        self.given = 0
        self.is_closed = False

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Any:
        if not self._parts:
            raise StopAsyncIteration
        part = self._parts[0] if self._endless else self._parts.pop(0)
        if isinstance(part, Exception):
            raise part
        self.given += 1
        await asyncio.sleep(0)
        return part

    async def aclose(self) -> None:
        self.is_closed = True


class _SDKError(Exception):
    status_code = 429
    litellm_response_headers = {"retry-after": "7"}  # noqa: RUF012


class _UnsupportedParamsError(Exception):
    status_code = 400


def _said(text: str) -> _Chunk:
    return _Chunk(choices=[{"index": 0, "delta": {"content": text}}])


@pytest.fixture
def sdk_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a client whose SDK gives an answer, or raises it."""

    def make(answer: Any) -> LiteLLMUpstream:
        async def acompletion(**arguments: Any) -> Any:
            sdk.arguments = arguments
            if isinstance(answer, Exception):
                raise answer
            return answer

        sdk = SimpleNamespace(
            acompletion=acompletion,
            get_llm_provider=lambda _model, **_: ("tiny", "gemini"),
            BadRequestError=KeyError,
            ContextWindowExceededError=IndexError,
            UnsupportedParamsError=_UnsupportedParamsError,
            user_url_validation=False,
        )
        monkeypatch.setitem(sys.modules, "litellm", sdk)
        monkeypatch.setattr(LiteLLMModel, "warm_up", lambda _: None)
        load_litellm.cache_clear()
        client = LiteLLMUpstream(ExpertSpec("small", "litellm", {"model": "gemini/tiny"}))
        assert sdk.user_url_validation
        client.sdk = sdk  # type: ignore[attr-defined]
        return client

    monkeypatch.setenv("GEMINI_API_KEY", "gemini-key-0123456789")
    # Those that the package sets, so that they are reset.
    for name in ("LOCAL_MODEL_COST_MAP", "LOCAL_ANTHROPIC_BETA_HEADERS", "MODE"):
        monkeypatch.setenv(f"LITELLM_{name}", "")
    yield make
    load_litellm.cache_clear()


async def test_an_answer_of_an_sdk_is_a_response(sdk_client: Any) -> None:
    client = sdk_client(_Chunk(choices=[], usage=None))
    assert await ask(client) == (200, b'{"choices": [], "usage": null}')
    assert client.sdk.arguments["messages"] == [{"role": "user", "content": "Hi"}]
    assert client.sdk.arguments["model"] == "gemini/tiny"
    assert (client.sdk.arguments["num_retries"], client.sdk.arguments["max_retries"]) == (0, 0)
    assert client.target("chat") == ("chat", "gcp.gemini", "gemini/tiny", "", "")
    assert (client.slots.calls, client.slots.waiting) == (0, 0)
    client.close()


async def test_an_error_of_an_sdk_is_a_response_without_the_key(sdk_client: Any) -> None:
    error = _SDKError("no gemini-key-0123456789\nTraceback (most recent call last): /home/x")
    for is_stream in (False, True):
        client = sdk_client(_Stream(error) if is_stream else error)
        response = await send(client, patience(), is_stream=is_stream)
        assert response.status == 429
        assert (b"retry-after", b"7") in response.headers
        assert json.loads(response.body)["error"]["message"] == "no [secret]"
        response.close()
        client.close()


async def test_what_an_sdk_cannot_express_is_an_unsupported_request(sdk_client: Any) -> None:
    error = _UnsupportedParamsError("x does not support parameters: ['n']. To drop these, set y")
    for is_stream in (False, True):
        client = sdk_client(_Stream(error) if is_stream else error)
        with pytest.raises(UnsupportedRequest) as caught:
            await ask(client, is_stream=is_stream)
        assert caught.value.detail == "x does not support parameters: ['n']; leave them out."
        assert (client.slots.calls, client.slots.waiting) == (0, 0)
        client.close()


async def test_a_stream_of_an_sdk_has_events_an_end_and_the_usage_apart(sdk_client: Any) -> None:
    last = _Chunk(choices=[{"index": 0, "delta": {}}], usage={"prompt_tokens": 3})
    stream = _Stream(_said("a"), last)
    client = sdk_client(stream)
    status_code, body = await ask(client, is_stream=True)
    events = [line[6:] for line in body.decode().split("\n\n") if line]
    assert status_code == 200
    assert json.loads(events[0])["choices"][0]["delta"] == {"content": "a"}
    assert json.loads(events[1]) == {"choices": [], "usage": {"prompt_tokens": 3}}
    assert events[2:] == ["[DONE]"]
    await until(lambda: stream.is_closed)
    client.close()


async def test_a_stream_of_an_sdk_that_fails_in_the_middle_is_an_error(sdk_client: Any) -> None:
    client = sdk_client(_Stream(_said("a"), _SDKError("oh")))
    with pytest.raises(UpstreamError, match="error_event"):
        await ask(client, is_stream=True)
    assert (client.slots.calls, client.slots.waiting) == (0, 0)
    client.close()


async def test_a_stream_of_an_sdk_that_nobody_reads_waits_and_can_be_left(sdk_client: Any) -> None:
    stream = _Stream(_said("a" * 4000), endless=True)
    client = sdk_client(stream)
    response = await send(client, patience(), is_stream=True)
    for _ in range(50):
        await asyncio.sleep(0)
    # Nothing is taken that nobody reads.
    assert stream.given == 1
    await response.read()
    await response.read()
    response.close()
    await until(lambda: stream.is_closed)
    client.close()


async def test_an_sdk_that_hangs_meets_the_deadline(sdk_client: Any) -> None:
    client = sdk_client(None)

    async def hang(**_: Any) -> None:
        await asyncio.Event().wait()

    client.sdk.acompletion = hang
    for is_stream in (False, True):
        with pytest.raises(UpstreamError, match="timeout"):
            await ask(client, patience(first=0.05, whole=0.05), is_stream=is_stream)
    assert (client.slots.calls, client.slots.waiting) == (0, 0)
    client.close()
