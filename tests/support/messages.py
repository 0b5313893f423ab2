"""Anthropic's Messages API on loopback: answers, streams and errors in the shapes that its
documentation records, for the behaviors of a ``HostileServer``.
"""

from __future__ import annotations

import json
from typing import Any

from tests.experts.hostile_server import Behavior, Call, answers, status
from tests.gateway.streams import streams

Json = dict[str, Any]
USAGE = {
    "input_tokens": 12,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 30,
    "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 6,
    "service_tier": "standard",
}
TOOL_USE = {
    "type": "tool_use",
    "id": "toolu_01D7FLrfh4GYq7yT1ULFeyMV",
    "name": "add",
    "input": {"a": 2, "b": 2},
}


def message(*content: Json, stop_reason: str = "end_turn", **changes: Any) -> Json:
    """An answer as ``POST /v1/messages`` gives it."""
    return {
        "id": "msg_013Zva2CMHLNnXjNJJKqJ2EF",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": list(content) or [{"type": "text", "text": "four"}],
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": USAGE,
        **changes,
    }


def event(document: Json) -> bytes:
    return f"event: {document['type']}\ndata: {json.dumps(document)}\n\n".encode()


def start(**changes: Any) -> bytes:
    usage = {"usage": USAGE | {"output_tokens": 1}}
    begun = message(**usage | {"content": [], "stop_reason": None} | changes)
    return event({"type": "message_start", "message": begun})


def block_start(index: int, block: Json) -> bytes:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, change: Json) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": change})


def block_stop(index: int) -> bytes:
    return event({"type": "content_block_stop", "index": index})


def text_block(index: int, *texts: str) -> list[bytes]:
    return [
        block_start(index, {"type": "text", "text": ""}),
        *(delta(index, {"type": "text_delta", "text": text}) for text in texts),
        block_stop(index),
    ]


def tool_block(index: int, *parts: str, name: str = "add", id: str = "toolu_1") -> list[bytes]:  # noqa: A002
    block = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return [
        block_start(index, block),
        *(delta(index, {"type": "input_json_delta", "partial_json": part}) for part in parts),
        block_stop(index),
    ]


def end(stop_reason: str = "end_turn", output_tokens: int = 6) -> list[bytes]:
    change = {"stop_reason": stop_reason, "stop_sequence": None}
    usage = {"output_tokens": output_tokens}
    return [
        event({"type": "message_delta", "delta": change, "usage": usage}),
        event({"type": "message_stop"}),
    ]


PING = event({"type": "ping"})
STREAM = [start(), PING, *text_block(0, "fo", "ur"), *end()]


def error_document(kind: str, text: str) -> Json:
    return {
        "type": "error",
        "error": {"type": kind, "message": text},
        "request_id": "req_011CSHoEeqs5C35K2UUqR7Fy",
    }


def fails(code: int, kind: str, text: str, headers: dict[str, str] | None = None) -> Behavior:
    return status(code, headers or {}, json.dumps(error_document(kind, text)))


OVERLOADED = event(error_document("overloaded_error", "Overloaded"))


def claude(call: Call, usage: Json = USAGE) -> Behavior:
    """Calls the tool that it is given, says how much it is once it knows, else "four"."""
    asked = call.json
    last = asked["messages"][-1]["content"]
    has_result = isinstance(last, list) and any(part["type"] == "tool_result" for part in last)
    calls = "tools" in asked and not has_result
    # The second is the first one's name in the beta, which LiteLLM sends.
    is_structured = "output_config" in asked or "output_format" in asked
    text = '{"sum": 4}' if is_structured else "four"
    if asked.get("stream"):
        blocks = text_block(0, text[:2], text[2:])
        if calls:
            blocks = [*text_block(0, "Adding."), *tool_block(1, '{"a": 2', ', "b": 2}')]
        begin = start(usage=usage | {"output_tokens": 1})
        return streams(begin, PING, *blocks, *end("tool_use" if calls else "end_turn"))
    if calls:
        said = {"type": "text", "text": "Adding."}
        return answers(message(said, TOOL_USE, stop_reason="tool_use", usage=usage))
    return answers(message({"type": "text", "text": text}, usage=usage))
