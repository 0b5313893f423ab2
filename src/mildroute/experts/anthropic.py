"""Translation between OpenAI's chat completions and Anthropic's Messages API, in both directions.

Pure functions on parsed JSON, and two state machines for streams. Collection uses them to call
experts of kind ``anthropic``; the gateway uses them to call such experts and to serve
``/v1/messages``.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from mildroute.exceptions import MildrouteError

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "VERSION",
    "ChatStream",
    "MessageStream",
    "TranslationError",
    "chat_error",
    "chat_to_messages",
    "completion_to_message",
    "message_error",
    "message_to_completion",
    "messages_to_chat",
]

# Written by hand because of its cost. LiteLLM's translation takes 605 microseconds for a request
# with a tool and an image and 5.7 seconds of processor time to import; the types of Anthropic's SDK
# take 3.4 seconds to import and 49 microseconds to read an answer, and translate nothing. This
# module takes 42 and 16 microseconds for the same, and imports nothing. Both official clients check
# its results in tests/gateway/test_messages.py; benchmarks/speed/gateway.py measures what it adds.

Json = dict[str, Any]

# The version of the API whose requests may hold temperature and top_p, as those of OpenAI do.
VERSION = "2023-06-01"
# The API needs a bound of the answer; OpenAI's clients may leave it out.
DEFAULT_MAX_TOKENS = 4096
_MAX_TOKENS = 1 << 40
_MAX_EVENT = 2 << 20
# Commas and brackets in the arguments of a tool.
_MAX_VALUES = 200_000
_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
# The last one is that of llama.cpp's server.
_TOO_LONG = ("prompt is too long", "exceed context limit", "context window", "context size")
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}
_CHAT_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
# Fields of a chat that ask for what the Messages API has not; others that it lacks are left out.
_UNSUPPORTED = ("audio", "functions", "logprobs", "top_logprobs", "web_search_options")
# Fields of Anthropic's own that OpenAI's clients send as extra ones.
_OWN_FIELDS = ("cache_control", "thinking")
_SAMPLING = ("temperature", "top_p", "top_k")


class TranslationError(MildrouteError, ValueError):
    """A request or an answer that the other API cannot express, or that is malformed.

    Args:
        message: The rule, what violated it and the way out; quotes only field names of the input.
        param: The offending field, or none.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


def _object(value: Any, where: str) -> Json:
    if type(value) is not dict:
        raise TranslationError(f"{where} must be an object, got something else.", where)
    return value


def _list(value: Any, where: str) -> list[Any]:
    if type(value) is not list:
        raise TranslationError(f"{where} must be a list, got something else.", where)
    return value


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise TranslationError(f"{where} must be a text, got something else.", where)
    return value


def _count(usage: Json, name: str) -> int | None:
    """A number of tokens; none if it is not told or cannot be right."""
    value = usage.get(name)
    return value if type(value) is int and 0 <= value < _MAX_TOKENS else None


# From a chat to the request of a message.


def chat_to_messages(
    chat: Json, *, max_tokens: int = DEFAULT_MAX_TOKENS, sampling: bool = True
) -> Json:
    """Translate the request of a chat completion.

    Fields that Anthropic's own endpoint for OpenAI clients ignores, such as ``seed`` and penalties,
    are dropped. System messages are joined at the beginning; turns of the same role are merged.

    Args:
        chat: The body, parsed.
        max_tokens: Limit of the answer if the request sets none.
        sampling: Whether to forward ``temperature``, ``top_p`` and ``top_k``, which newer models
            reject.

    Raises:
        TranslationError: It requests a feature that the Messages API lacks, or is malformed.

    Example:
        >>> chat_to_messages({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
        {'model': 'm', 'max_tokens': 4096, 'messages': [{'role': 'user', 'content': 'Hi'}]}
    """
    _refuse_unsupported(chat)
    system, turns = _turns(_list(chat.get("messages"), "messages"))
    request: Json = {
        "model": chat.get("model"),
        "max_tokens": _bound(chat, max_tokens),
        "messages": turns,
    }
    if system:
        request["system"] = system
    if chat.get("stream") is True:
        request["stream"] = True
    names = (*_SAMPLING, *_OWN_FIELDS) if sampling else _OWN_FIELDS
    request |= {name: chat[name] for name in names if chat.get(name) is not None}
    if type(request.get("temperature")) in (int, float):
        request["temperature"] = min(request["temperature"], 1)
    if stops := _stop_sequences(chat.get("stop")):
        request["stop_sequences"] = stops
    request |= _tools(chat)
    if user := _user(chat):
        request["metadata"] = {"user_id": user}
    if (schema := _schema(chat.get("response_format"))) is not None:
        request["output_config"] = {"format": {"type": "json_schema", "schema": schema}}
    return request


def _bound(chat: Json, default: int) -> Any:
    given = [chat.get("max_completion_tokens"), chat.get("max_tokens")]
    return next((bound for bound in given if bound is not None), default)


def _refuse_unsupported(chat: Json) -> None:
    if chat.get("n") not in (None, 1):
        raise TranslationError("n must be 1 for an Anthropic expert; ask several times.", "n")
    for name in _UNSUPPORTED:
        if chat.get(name):
            raise TranslationError(
                f"{name} must be left out for an Anthropic expert, whose API has no such field.",
                name,
            )


def _stop_sequences(stop: Any) -> list[str]:
    given = [stop] if type(stop) is str else _list(stop or [], "stop")
    # The API refuses sequences of white space.
    return [text for each in given if (text := _text(each, "stop")).strip()]


def _user(chat: Json) -> str | None:
    metadata = chat.get("metadata")
    found = metadata if type(metadata) is dict else {}
    for user in (chat.get("user"), found.get("user_id"), found.get("user")):
        if type(user) is str and user:
            return user
    return None


def _schema(form: Any) -> Json | None:
    kind = None if form is None else _object(form, "response_format").get("type")
    if kind in (None, "text"):
        return None
    if kind != "json_schema":
        raise TranslationError(
            "response_format must be of type text or json_schema for an Anthropic expert, got"
            " another one; give the schema of the answer.",
            "response_format",
        )
    given = _object(form.get("json_schema"), "response_format.json_schema")
    return _object(given.get("schema"), "response_format.json_schema.schema")


def _tools(chat: Json) -> Json:
    found: Json = {}
    given = _list(chat.get("tools") or [], "tools")
    tools = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(given)]
    if tools:
        found["tools"] = tools
    choice = chat.get("tool_choice")
    if type(choice) is dict:
        named = _object(choice.get("function"), "tool_choice.function")
        found["tool_choice"] = {"type": "tool", "name": _text(named.get("name"), "tool_choice")}
    elif choice is not None:
        kind = _TOOL_CHOICES.get(_text(choice, "tool_choice"))
        if kind is None:
            raise TranslationError(
                "tool_choice must be auto, none, required or a function.", "tool_choice"
            )
        found["tool_choice"] = {"type": kind}
    if tools and chat.get("parallel_tool_calls") is False:
        choice = found.setdefault("tool_choice", {"type": "auto"})
        if choice["type"] != "none":
            choice["disable_parallel_tool_use"] = True
    return found


def _tool(tool: Any, where: str) -> Json:
    if _object(tool, where).get("type") != "function":
        raise TranslationError(
            f"{where} must be of type function for an Anthropic expert; leave it out.", where
        )
    function = _object(tool.get("function"), f"{where}.function")
    found: Json = {
        "name": _text(function.get("name"), f"{where}.function.name"),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }
    for name in ("description", "strict"):
        if function.get(name) is not None:
            found[name] = function[name]
    return _with_cache_control(found, tool)


def _with_cache_control(block: Json, given: Json) -> Json:
    # Not of OpenAI's API, but what its clients send for Anthropic's prompt cache.
    if given.get("cache_control") is not None:
        block["cache_control"] = given["cache_control"]
    return block


def _turns(messages: list[Any]) -> tuple[str | list[Json], list[Json]]:
    """The system prompt, and the turns of user and assistant."""
    system: list[Json] = []
    turns: list[Json] = []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        role = _object(message, where).get("role")
        if role in ("system", "developer"):
            system += _blocks(message.get("content"), where)
        elif role == "user":
            _add_turn(turns, "user", _blocks(message.get("content"), where))
        elif role == "assistant":
            _add_turn(turns, "assistant", _assistant_blocks(message, where))
        elif role == "tool":
            _add_turn(turns, "user", [_tool_result(message, where)])
        else:
            raise TranslationError(
                f"{where}.role must be system, developer, user, assistant or tool for an Anthropic"
                " expert.",
                f"{where}.role",
            )
    if any(block["type"] != "text" for block in system):
        raise TranslationError("system messages must be text for an Anthropic expert.", "messages")
    if any("cache_control" in block for block in system):
        return system, turns
    return "\n".join(block["text"] for block in system), turns


def _add_turn(turns: list[Json], role: str, blocks: list[Json]) -> None:
    """Add blocks to the last turn if it is of the same role, else a turn."""
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        before = turns[-1]["content"]
        if type(before) is str:
            before = turns[-1]["content"] = [{"type": "text", "text": before}]
        before += blocks
    elif len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        turns.append({"role": role, "content": blocks[0]["text"]})
    else:
        turns.append({"role": role, "content": blocks})


def _blocks(content: Any, where: str) -> list[Json]:
    """Content of a chat message as blocks, without empty texts, which the API refuses."""
    if content is None or type(content) is str:
        return [{"type": "text", "text": content}] if content else []
    parts = [_block(part, where) for part in _list(content, f"{where}.content")]
    return [part for part in parts if part.get("text") != ""]


def _block(part: Any, where: str) -> Json:
    kind = _object(part, f"{where}.content").get("type")
    if kind == "text":
        block: Json = {"type": "text", "text": _text(part.get("text"), f"{where}.content")}
    elif kind == "refusal":
        block = {"type": "text", "text": _text(part.get("refusal"), f"{where}.content")}
    elif kind == "image_url":
        image = _object(part.get("image_url"), f"{where}.content.image_url")
        url = _text(image.get("url"), f"{where}.content.image_url.url")
        block = {"type": "image", "source": _source(url)}
    elif kind == "file":
        file = _object(part.get("file"), f"{where}.content.file")
        data = _text(file.get("file_data"), f"{where}.content.file.file_data")
        block = {"type": "document", "source": _source(data)}
    else:
        raise TranslationError(
            f"{where}.content must hold text, images and files for an Anthropic expert, got"
            " another kind of part; leave it out.",
            f"{where}.content",
        )
    return _with_cache_control(block, part)


def _source(url: str) -> Json:
    """Where an image or a file is: in the address itself, or behind it."""
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        media_type = head[5:-7].partition(";")[0]
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}


def _assistant_blocks(message: Json, where: str) -> list[Json]:
    content = message.get("content")
    blocks = _blocks(message.get("refusal") if content is None else content, where)
    if message.get("function_call"):
        raise TranslationError(
            f"{where}.function_call must be left out for an Anthropic expert; use tool_calls.",
            f"{where}.function_call",
        )
    for call in _list(message.get("tool_calls") or [], f"{where}.tool_calls"):
        function = _object(_object(call, where).get("function"), f"{where}.tool_calls.function")
        blocks.append(
            {
                "type": "tool_use",
                "id": _text(call.get("id"), f"{where}.tool_calls.id"),
                "name": _text(function.get("name"), f"{where}.tool_calls.function.name"),
                "input": _arguments(function.get("arguments"), where),
            }
        )
    return blocks


def _arguments(arguments: Any, where: str) -> Json:
    found = None
    # Many values are decoded in one call, which holds all threads.
    if type(arguments) is not str or sum(map(arguments.count, ",[{")) <= _MAX_VALUES:
        with contextlib.suppress(TypeError, ValueError, RecursionError):
            found = _ARGUMENTS.decode(arguments or "{}")
    if type(found) is not dict:
        raise TranslationError(
            f"{where}.tool_calls.function.arguments must be a JSON object in a text for an"
            f" Anthropic expert, with at most {_MAX_VALUES:,} commas and brackets, got something"
            " else.",
            f"{where}.tool_calls.function.arguments",
        )
    return found


def _finite(number: str) -> float:
    """A number as JSON can write it again: no NaN, no Infinity."""
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(f"{number:.20} is no JSON")
    return found


_ARGUMENTS = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _tool_result(message: Json, where: str) -> Json:
    found: Json = {
        "type": "tool_result",
        "tool_use_id": _text(message.get("tool_call_id"), f"{where}.tool_call_id"),
    }
    content = message.get("content")
    if content:
        found["content"] = content if type(content) is str else _blocks(content, where)
    return found


# From the answer of a message to that of a chat.


def message_to_completion(message: Any, created: int | None = None) -> Json:
    """Translate a response of the Messages API to a chat completion.

    Args:
        message: The body, parsed; of any shape.
        created: Seconds since 1970; now by default.

    Raises:
        TranslationError: It is not a response of the Messages API.

    Example:
        >>> block = {"type": "text", "text": "4"}
        >>> answer = {"content": [block], "stop_reason": "end_turn"}
        >>> message_to_completion(answer)["choices"][0]["message"]["content"]
        '4'
    """
    blocks = _list(_object(message, "the answer").get("content"), "content")
    texts = [text for block in blocks if (text := _block_text(block, "text", "text"))]
    thoughts = [text for block in blocks if (text := _block_text(block, "thinking", "thinking"))]
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    said: Json = {"role": "assistant", "content": "".join(texts) if texts or not calls else None}
    if thoughts:
        said["reasoning_content"] = "".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    finish_reason = _finish_reason(message.get("stop_reason"))
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": finish_reason}
    found: Json = _head(message, "chat.completion", created) | {"choices": [choice]}
    if (usage := _chat_usage(message.get("usage"))) is not None:
        found["usage"] = usage
    return found


def _block_text(block: Any, kind: str, name: str) -> str:
    is_kind = _object(block, "content").get("type") == kind
    return _text(block.get(name), f"content.{name}") if is_kind else ""


def _call(block: Json) -> Json:
    arguments = json.dumps(_object(block.get("input"), "content.input"), ensure_ascii=False)
    name = _text(block.get("name"), "content.name")
    return {
        "id": _text(block.get("id"), "content.id"),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def _finish_reason(stop_reason: Any) -> str:
    # New reasons may come with new models.
    return _FINISH_REASONS.get(stop_reason, "stop") if type(stop_reason) is str else "stop"


def _head(message: Json, kind: str, created: int | None) -> Json:
    found_id, model = message.get("id"), message.get("model")
    return {
        "id": found_id if type(found_id) is str else "",
        "object": kind,
        "created": int(time.time()) if created is None else created,
        "model": model if type(model) is str else "",
    }


def _chat_usage(usage: Any) -> Json | None:
    """Return usage as OpenAI counts it: all input tokens, and how many of them came from the cache.

    None if it is missing or implausible, so that it is estimated.
    """
    if type(usage) is not dict:
        return None
    tokens_in, tokens_out = _count(usage, "input_tokens"), _count(usage, "output_tokens")
    if tokens_in is None or tokens_out is None:
        return None
    read = _count(usage, "cache_read_input_tokens") or 0
    written = _count(usage, "cache_creation_input_tokens") or 0
    tokens_in += read + written
    return {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
    }


def chat_error(body: Any) -> Json:
    """Translate the error of the Messages API, of any shape, to that of a chat.

    Example:
        >>> error = {"type": "overloaded_error", "message": "Overloaded"}
        >>> chat_error({"type": "error", "error": error})["error"]["code"]
        'overloaded_error'
    """
    given = body.get("error") if type(body) is dict else None
    error = given if type(given) is dict else {}
    kind, message = error.get("type"), error.get("message")
    kind = kind if type(kind) is str else "api_error"
    message = message if type(message) is str else "the expert sent an error without a message."
    is_long = any(words in message for words in _TOO_LONG)
    code = "context_length_exceeded" if is_long else kind
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


# Streams: events in, events out, as bytes that are cut anywhere.


class _Events:
    """Splits bytes into server-sent events."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes | None]:
        """Return the data of each complete event; none for a comment.

        Raises:
            TranslationError: An event is too long.
        """
        self._pieces.append(chunk)
        self._size += len(chunk)
        if b"\n" in chunk:
            # Pieces of an unfinished line are joined once.
            data = b"".join(self._pieces).replace(b"\r\n", b"\n")
            *events, rest = data.split(b"\n\n")
            self._pieces = [rest]
            self._size = len(rest)
        else:
            events = []
        if self._size > _MAX_EVENT:
            raise TranslationError(f"an event must have at most {_MAX_EVENT:,} bytes, got more.")
        for event in events:
            lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            yield b"\n".join(lines) if lines else None


def _parsed(data: bytes) -> Json:
    try:
        return _object(json.loads(data), "an event")
    except (ValueError, RecursionError):
        raise TranslationError("an event must be a JSON object, got something else.") from None


def _as_data(document: Json) -> bytes:
    return b"data: %b\n\n" % json.dumps(document).encode()


class ChatStream:
    """Translates the events of a message to those of a chat, with the usage at the end.

    Args:
        created: Seconds since 1970; now by default.
    """

    __slots__ = ("_calls", "_events", "_has_arguments", "_head", "_inputs", "_reason", "_usage")

    def __init__(self, created: int | None = None) -> None:
        self._events = _Events()
        self._head = _head({}, "chat.completion.chunk", created)
        # Place among the calls of each block that is one, and the input that came with its begin.
        self._calls: dict[int, int] = {}
        self._inputs: dict[int, Any] = {}
        self._has_arguments: set[int] = set()
        self._reason: Any = None
        self._usage: Json = {}

    def feed(self, chunk: bytes) -> bytes:
        """The events to send after the next bytes have come.

        Raises:
            TranslationError: This is not the stream of a message.
        """
        return b"".join(
            [
                b"" if data is None else self._translate(_parsed(data))
                for data in self._events.feed(chunk)
            ]
        )

    @property
    def usage(self) -> Json | None:
        """Usage so far, in OpenAI's form; none if it is not reported."""
        return _chat_usage(self._usage)

    def _translate(self, event: Json) -> bytes:
        kind = event.get("type")
        handler = self._HANDLERS.get(kind) if type(kind) is str else None
        # New kinds of events may come at any time, says the API's documentation.
        return b"" if handler is None else handler(self, event)

    def _chunk(self, delta: Json, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _as_data(self._head | {"choices": [choice]})

    def _start(self, event: Json) -> bytes:
        message = _object(event.get("message"), "message")
        self._head = _head(message, self._head["object"], self._head["created"])
        self._count(message.get("usage"))
        return self._chunk({"role": "assistant", "content": ""})

    def _count(self, usage: Any) -> None:
        # Those of later events are sums, and take the place of earlier ones.
        if type(usage) is dict:
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _start_block(self, event: Json) -> bytes:
        block = _object(event.get("content_block"), "content_block")
        if block.get("type") == "tool_use":
            index = _index(event)
            place = self._calls[index] = len(self._calls)
            self._inputs[index] = block.get("input")
            call = _call(block | {"input": {}})
            call["function"]["arguments"] = ""
            return self._chunk({"tool_calls": [{"index": place, **call}]})
        text = _block_text(block, "text", "text")
        return self._chunk({"content": text}) if text else b""

    def _add(self, event: Json) -> bytes:
        delta = _object(event.get("delta"), "delta")
        kind = delta.get("type")
        if kind == "text_delta":
            return self._chunk({"content": _text(delta.get("text"), "delta.text")})
        if kind == "thinking_delta":
            return self._chunk({"reasoning_content": _text(delta.get("thinking"), "delta")})
        if kind == "input_json_delta" and (index := _index(event)) in self._calls:
            part = _text(delta.get("partial_json"), "delta.partial_json")
            if part:
                self._has_arguments.add(index)
                return self._add_arguments(index, part)
        return b""

    def _add_arguments(self, index: int, part: str) -> bytes:
        call = {"index": self._calls[index], "function": {"arguments": part}}
        return self._chunk({"tool_calls": [call]})

    def _stop_block(self, event: Json) -> bytes:
        index = _index(event)
        if index not in self._calls or index in self._has_arguments:
            return b""
        # A tool without parameters: its arguments are an object nevertheless.
        given = self._inputs[index]
        return self._add_arguments(index, json.dumps(given if type(given) is dict else {}))

    def _change(self, event: Json) -> bytes:
        self._reason = _object(event.get("delta"), "delta").get("stop_reason") or self._reason
        self._count(event.get("usage"))
        return b""

    def _stop(self, _event: Json) -> bytes:
        end = self._chunk({}, _finish_reason(self._reason))
        usage = self.usage
        counted = b"" if usage is None else _as_data(self._head | {"choices": [], "usage": usage})
        return end + counted + b"data: [DONE]\n\n"

    def _ping(self, _event: Json) -> bytes:
        return b": ping\n\n"

    def _error(self, event: Json) -> bytes:
        return _as_data(chat_error(event))

    _HANDLERS: dict[str, Callable[[ChatStream, Json], bytes]] = {  # noqa: RUF012 - never changed
        "message_start": _start,
        "content_block_start": _start_block,
        "content_block_delta": _add,
        "content_block_stop": _stop_block,
        "message_delta": _change,
        "message_stop": _stop,
        "ping": _ping,
        "error": _error,
    }


def _index(event: Json) -> int:
    index = event.get("index")
    if type(index) is not int:
        raise TranslationError("index must be a whole number, got something else.", "index")
    return index


# From the request of a message to a chat.


# Fields that a chat can do without: they change what an answer costs or how it is made, not what is
# asked. Any other that has no counterpart keeps a request with experts of kind ``anthropic``.
_LEFT_OUT = {"cache_control", "context_management", "diagnostics", "inference_geo"}
_LEFT_OUT |= {"service_tier", "speed", "thinking", "top_k", "user_profile_id", "workspace_id"}
_TRANSLATED = {"max_tokens", "messages", "metadata", "model", "output_config", "output_format"}
_TRANSLATED |= {"stop_sequences", "stream", "system", "temperature", "tool_choice", "tools"}
_TRANSLATED |= {"top_p"}
_THOUGHTS = ("thinking", "redacted_thinking")


def messages_to_chat(request: Json) -> tuple[Json, list[str]]:
    """Translate the request of a message to that of a chat completion.

    Args:
        request: The body, parsed.

    Returns:
        The chat, and the fields that were lost although they change the request, such as tools that
        run at Anthropic.

    Raises:
        TranslationError: It has a wrong shape.

    Example:
        >>> turn = {"role": "user", "content": "Hi"}
        >>> messages_to_chat({"model": "m", "max_tokens": 9, "messages": [turn], "mcp_servers": []})
        ({'model': 'm', 'messages': [{'role': 'user', 'content': 'Hi'}], 'max_tokens': 9}, \
['mcp_servers'])
    """
    lost = [name for name in request if name not in _TRANSLATED and name not in _LEFT_OUT]
    if request.get("max_tokens") is None:
        raise TranslationError("max_tokens must be given, got none.", "max_tokens")
    chat: Json = {"model": request.get("model"), "messages": _all_messages(request, lost)}
    names = ("max_tokens", "stream", "temperature", "top_p")
    chat |= {name: request[name] for name in names if request.get(name) is not None}
    if type(chat["max_tokens"]) is float and chat["max_tokens"].is_integer():
        # A whole number, as JSON Schema has it.
        chat["max_tokens"] = int(chat["max_tokens"])
    if request.get("stop_sequences"):
        chat["stop"] = request["stop_sequences"]
    chat |= _chat_tools(request, lost)
    if user := _user({"metadata": request.get("metadata")}):
        chat["user"] = user
    if (schema := _output_schema(request)) is not None:
        form = {"name": "answer", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": form}
    return chat, lost


def _all_messages(request: Json, lost: list[str]) -> list[Json]:
    messages: list[Json] = []
    if system := _system_text(request.get("system"), lost):
        messages.append({"role": "system", "content": system})
    for at, message in enumerate(_list(request.get("messages"), "messages")):
        messages += _chat_turn(_object(message, f"messages[{at}]"), f"messages[{at}]", lost)
    return messages


def _system_text(system: Any, lost: list[str]) -> str:
    if system is None or type(system) is str:
        return system or ""
    parts = [_part(block, "system", lost) for block in _list(system, "system")]
    return "\n".join(part["text"] for part in parts if part and part["type"] == "text")


def _output_schema(request: Json) -> Json | None:
    config = request.get("output_config")
    form = config.get("format") if type(config) is dict else request.get("output_format")
    if form is None:
        return None
    return _object(_object(form, "output_config.format").get("schema"), "output_config.format")


def _chat_tools(request: Json, lost: list[str]) -> Json:
    found: Json = {}
    tools = _list(request.get("tools") or [], "tools")
    functions = [_function(tool, f"tools[{at}]", lost) for at, tool in enumerate(tools)]
    if known := [function for function in functions if function is not None]:
        found["tools"] = known
    choice = request.get("tool_choice")
    if choice is None:
        return found
    kind = _object(choice, "tool_choice").get("type")
    if kind == "tool":
        name = _text(choice.get("name"), "tool_choice.name")
        found["tool_choice"] = {"type": "function", "function": {"name": name}}
    elif type(kind) is str and kind in _CHAT_CHOICES:
        found["tool_choice"] = _CHAT_CHOICES[kind]
    else:
        raise TranslationError("tool_choice.type must be auto, any, tool or none.", "tool_choice")
    if choice.get("disable_parallel_tool_use") is True:
        found["parallel_tool_calls"] = False
    return found


def _function(tool: Any, where: str, lost: list[str]) -> Json | None:
    """A tool of the client as a function; none for one that runs at Anthropic."""
    if _object(tool, where).get("type") not in (None, "custom"):
        lost.append(where)
        return None
    function: Json = {"name": _text(tool.get("name"), f"{where}.name")}
    for name in ("description", "strict"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    function["parameters"] = _object(tool.get("input_schema"), f"{where}.input_schema")
    return {"type": "function", "function": function}


def _chat_turn(message: Json, where: str, lost: list[str]) -> list[Json]:
    known = len(lost)
    found = _chat_messages(message, where, lost)
    if not found and len(lost) > known:
        # Only an expert of kind ``anthropic`` gets what it says, but it is a turn.
        return [{"role": message["role"], "content": ""}]
    return found


def _chat_messages(message: Json, where: str, lost: list[str]) -> list[Json]:
    """One turn as the messages of a chat: results of tools are messages of their own."""
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise TranslationError(f"{where}.role must be user or assistant.", f"{where}.role")
    if type(content) is str:
        return [{"role": role, "content": content}]
    results: list[Json] = []
    parts: list[Json] = []
    calls: list[Json] = []
    for block in _list(content, f"{where}.content"):
        kind = _object(block, f"{where}.content").get("type")
        if kind == "tool_use":
            calls.append(_call(block))
        elif kind == "tool_result":
            result, images = _result(block, where, lost)
            results.append(result)
            parts += images
        elif kind not in _THOUGHTS and (part := _part(block, f"{where}.content", lost)):
            parts.append(part)
    if role == "assistant" and (parts or calls):
        said: Json = {"role": role, "content": _joined(parts) if parts else None}
        return [said | {"tool_calls": calls} if calls else said]
    return [*results, {"role": role, "content": _joined(parts)}] if parts else results


def _joined(parts: list[Json]) -> str | list[Json]:
    """A text alone as a text, which all servers take."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _result(block: Json, where: str, lost: list[str]) -> tuple[Json, list[Json]]:
    """The message of a tool, and its images, which such a message cannot hold."""
    content = block.get("content")
    parts: list[Json] = []
    if type(content) is list:
        found = [_part(part, f"{where}.content", lost) for part in content]
        parts = [part for part in found if part]
        content = "\n".join(part["text"] for part in parts if part["type"] == "text")
    result = {
        "role": "tool",
        "tool_call_id": _text(block.get("tool_use_id"), f"{where}.content.tool_use_id"),
        "content": _text(content or "", f"{where}.content.content"),
    }
    return result, [part for part in parts if part["type"] != "text"]


def _part(block: Any, where: str, lost: list[str]) -> Json | None:
    """A block as a part of a chat message; none, and its place in ``lost``, if there is no such."""
    kind = _object(block, where).get("type")
    if kind == "text":
        return {"type": "text", "text": _text(block.get("text"), f"{where}.text")}
    source = block.get("source")
    given = source if type(source) is dict else {}
    if kind == "document" and given.get("type") == "text":
        return {"type": "text", "text": _text(given.get("data"), f"{where}.source.data")}
    url = _url(given, where)
    if kind == "image" and url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "document" and url is not None and given["type"] == "base64":
        return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}
    lost.append(where)
    return None


def _url(source: Json, where: str) -> str | None:
    if source.get("type") == "url":
        return _text(source.get("url"), f"{where}.source.url")
    if source.get("type") == "base64":
        media_type = _text(source.get("media_type"), f"{where}.source.media_type")
        return f"data:{media_type};base64,{_text(source.get('data'), f'{where}.source.data')}"
    return None


# From the answer of a chat to that of a message.


def completion_to_message(completion: Any) -> Json:
    """Translate a chat completion to a response of the Messages API.

    Args:
        completion: The body, parsed; of any shape.

    Raises:
        TranslationError: It is not a chat completion.

    Example:
        >>> said = {"role": "assistant", "content": "4"}
        >>> answer = {"choices": [{"message": said, "finish_reason": "stop"}]}
        >>> completion_to_message(answer)["content"]
        [{'type': 'text', 'text': '4'}]
    """
    choices = _list(_object(completion, "the answer").get("choices"), "choices")
    choice = _object(choices[0] if choices else None, "choices[0]")
    said = _object(choice.get("message"), "message")
    text = _said_text(said.get("content") or said.get("refusal"))
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    calls = _list(said.get("tool_calls") or [], "tool_calls")
    content += [_tool_use(_object(call, "tool_calls")) for call in calls]
    reason = _stop_reason(choice.get("finish_reason"), has_calls=bool(calls))
    return _message_head(completion) | {
        "content": content,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": _message_usage(completion.get("usage")),
    }


def _said_text(content: Any) -> str:
    if type(content) is not list:
        return _text(content or "", "content")
    parts = [part for part in content if type(part) is dict and part.get("type") == "text"]
    return "".join(_text(part.get("text"), "content.text") for part in parts)


def _tool_use(call: Json) -> Json:
    function = _object(call.get("function"), "tool_calls.function")
    arguments = _written_arguments(function) or "{}"
    given = _input_of(arguments)
    return {
        "type": "tool_use",
        # Some servers give calls none, and a client needs one to name the result.
        "id": _text(call.get("id") or f"toolu_{uuid.uuid4().hex}", "tool_calls.id"),
        "name": _text(function.get("name"), "tool_calls.function.name"),
        # What a model wrote wrongly is the client's to judge, and must not be lost.
        "input": {"arguments": arguments} if given is None else given,
    }


def _written_arguments(function: Json) -> str:
    given = function.get("arguments") or ""
    # Some servers send the object itself.
    return json.dumps(given) if type(given) is dict else _text(given, "tool_calls.arguments")


def _input_of(arguments: str) -> Json | None:
    """The object that arguments are; none if they are another value, or not complete."""
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return given if type(given) is dict else None


def _stop_reason(finish_reason: Any, *, has_calls: bool) -> str:
    found = _STOP_REASONS.get(finish_reason) if type(finish_reason) is str else None
    # Some servers end calls of tools with "stop".
    return "tool_use" if has_calls and found in (None, "end_turn") else found or "end_turn"


def _message_head(document: Json) -> Json:
    found_id, model = document.get("id"), document.get("model")
    return {
        "id": found_id if type(found_id) is str else "",
        "type": "message",
        "role": "assistant",
        "model": model if type(model) is str else "",
    }


def _message_usage(usage: Any) -> Json:
    """Return usage as Anthropic counts it: cache tokens are listed beside the others."""
    given = usage if type(usage) is dict else {}
    details = given.get("prompt_tokens_details")
    details = details if type(details) is dict else {}
    tokens = _count(given, "prompt_tokens") or 0
    read = min(_count(details, "cached_tokens") or 0, tokens)
    # The second is LiteLLM's name for it, from before OpenAI had one.
    name = "cache_write_tokens" if "cache_write_tokens" in details else "cache_creation_tokens"
    written = min(_count(details, name) or 0, tokens - read)
    return {
        "input_tokens": tokens - read - written,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": _count(given, "completion_tokens") or 0,
    }


def message_error(status: int, message: str) -> Json:
    """Return an error in the form of the Messages API.

    Example:
        >>> message_error(429, "Too many.")["error"]["type"]
        'rate_limit_error'
    """
    kind = _ERROR_TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}


def _event(document: Json) -> bytes:
    name = document["type"].encode()
    return b"event: %b\ndata: %b\n\n" % (name, json.dumps(document).encode())


class _ToolCall:
    """A call in a stream: the block that it is, and the parts of its arguments so far."""

    __slots__ = ("block", "parts")

    def __init__(self, block: Json) -> None:
        self.block = block
        self.parts: list[str] = []

    @property
    def is_complete(self) -> bool:
        # A look at the end first, as each call that begins asks this of the one that is open.
        is_closed = bool(self.parts) and self.parts[-1].rstrip().endswith("}")
        return is_closed and _input_of("".join(self.parts)) is not None


class MessageStream:
    """Translates the events of a chat to those of a message.

    The blocks of a message come one after the other, and so do tool calls at nearly all servers. If
    a server interleaves them, those after the first are held back until it is complete.

    Args:
        last_event: Returns an event to send before the last one, or none.
    """

    __slots__ = (
        "_block",
        "_blocks",
        "_calls",
        "_events",
        "_has_begun",
        "_last_event",
        "_open_calls",
        "_reason",
        "_usage",
    )

    def __init__(self, last_event: Callable[[], Json] | None = None) -> None:
        self._events = _Events()
        self._last_event = last_event
        self._has_begun = False
        # The block that is open: "text", "tool_use" or none.
        self._block: str | None = None
        self._blocks = 0
        # The latest call of each place.
        self._calls: dict[int, _ToolCall] = {}
        # The call whose block is open, and those that wait for its end.
        self._open_calls: deque[_ToolCall] = deque()
        self._reason: Any = None
        self._usage: Any = None

    def feed(self, chunk: bytes) -> bytes:
        """The events to send after the next bytes have come.

        Raises:
            TranslationError: This is not the stream of a chat.
        """
        return b"".join(
            [
                # A comment keeps the connection alive.
                b": keep-alive\n\n" if data is None else self._translate(data)
                for data in self._events.feed(chunk)
            ]
        )

    def _translate(self, data: bytes) -> bytes:
        if data == b"[DONE]":
            return self._end()
        document = _parsed(data)
        if document.get("error"):
            return _event(_error_of(document["error"]))
        begin = b"" if self._has_begun else self._begin(document)
        self._usage = document.get("usage") or self._usage
        choices = _list(document.get("choices") or [], "choices")
        return begin + b"".join([self._add(_object(choice, "choices")) for choice in choices[:1]])

    def _begin(self, document: Json) -> bytes:
        self._has_begun = True
        message = _message_head(document) | {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            # A chat tells it at its end, and message_delta has it.
            "usage": _message_usage(None),
        }
        return _event({"type": "message_start", "message": message})

    def _add(self, choice: Json) -> bytes:
        self._reason = choice.get("finish_reason") or self._reason
        delta = _object(choice.get("delta") or {}, "delta")
        found = b""
        text = _said_text(delta.get("content") or delta.get("refusal"))
        if text:
            if self._block != "text":
                found += self._close() + self._open({"type": "text", "text": ""})
            found += self._delta({"type": "text_delta", "text": text})
        for call in _list(delta.get("tool_calls") or [], "tool_calls"):
            found += self._add_call(_object(call, "tool_calls"))
        return found

    def _add_call(self, call: Json) -> bytes:
        # Some servers leave the place out, or give all calls the same one.
        place = 0 if call.get("index") is None else _index(call)
        function = _object(call.get("function") or {}, "tool_calls.function")
        part = _written_arguments(function)
        found = b""
        known = self._calls.get(place)
        if known is None or _is_another(call, function, known):
            block = _tool_use({"id": call.get("id"), "function": function | {"arguments": "{}"}})
            known = self._calls[place] = _ToolCall(block)
            self._open_calls.append(known)
            found = self._next_calls()
        return found + self._add_arguments(known, part)

    def _add_arguments(self, call: _ToolCall, part: str) -> bytes:
        if not part:
            return b""
        if call not in self._open_calls:
            raise TranslationError("arguments of a call must come before the next block.")
        call.parts.append(part)
        if call is not self._open_calls[0]:
            return b""
        return self._delta({"type": "input_json_delta", "partial_json": part})

    def _next_calls(self, *, is_end: bool = False) -> bytes:
        """End calls that are complete, and begin those that wait behind them."""
        calls = self._open_calls
        found = b""
        if self._block != "tool_use":
            found = self._close_block() + self._open_call(calls[0])
        while len(calls) > 1 and (is_end or calls[0].is_complete):
            calls.popleft()
            found += self._close_block() + self._open_call(calls[0])
        return found

    def _open_call(self, call: _ToolCall) -> bytes:
        found = self._open(call.block | {"input": {}})
        if call.parts:
            delta = {"type": "input_json_delta", "partial_json": "".join(call.parts)}
            found += self._delta(delta)
        return found

    def _open(self, block: Json) -> bytes:
        self._block = block["type"]
        self._blocks += 1
        index = self._blocks - 1
        return _event({"type": "content_block_start", "index": index, "content_block": block})

    def _close(self) -> bytes:
        """End the block that is open, and calls that wait for its end."""
        found = self._next_calls(is_end=True) if self._open_calls else b""
        self._open_calls.clear()
        return found + self._close_block()

    def _close_block(self) -> bytes:
        if self._block is None:
            return b""
        self._block = None
        return _event({"type": "content_block_stop", "index": self._blocks - 1})

    def _delta(self, delta: Json) -> bytes:
        return _event({"type": "content_block_delta", "index": self._blocks - 1, "delta": delta})

    def _end(self) -> bytes:
        begin = b"" if self._has_begun else self._begin({})
        reason = _stop_reason(self._reason, has_calls=bool(self._calls))
        change = {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": _message_usage(self._usage),
        }
        last = b"" if self._last_event is None else _event(self._last_event())
        return begin + self._close() + _event(change) + last + _event({"type": "message_stop"})


def _is_another(call: Json, function: Json, known: _ToolCall) -> bool:
    """Whether a call begins in the place of another one: it has a name, and an id of its own."""
    if not function.get("name"):
        return False
    return call["id"] != known.block["id"] if call.get("id") else known.is_complete


def _error_of(error: Any) -> Json:
    """The error in a stream of a chat, of any shape."""
    given = error if type(error) is dict else {}
    message = given.get("message", error)
    shown = message if type(message) is str else "the expert sent an error without a message."
    found = message_error(500, shown)
    if type(given.get("type")) is str and given["type"] in _ERROR_TYPES.values():
        found["error"]["type"] = given["type"]
    return found
