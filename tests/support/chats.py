"""OpenAI's chat completions on loopback: answers, streams and errors in the shapes that its
documentation records, for the behaviors of a ``HostileServer``. See ``tests.support.messages`` for
the same of Anthropic's API.
"""

from __future__ import annotations

import json
from typing import Any

from tests.experts.hostile_server import Behavior, Call, answers, completion, status
from tests.gateway.streams import DONE, streams

Json = dict[str, Any]
USAGE = {
    "prompt_tokens": 42,
    "completion_tokens": 6,
    "total_tokens": 48,
    "prompt_tokens_details": {"cached_tokens": 30},
}
FUNCTION = {"name": "add", "arguments": '{"a": 2, "b": 2}'}


def _event(**members: Any) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test"}
    return b"data: " + json.dumps(head | members).encode() + b"\n\n"


def chunk(delta: Json, finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _event(choices=[choice])


def text_chunks(text: str) -> list[bytes]:
    """A text in two pieces."""
    return [
        chunk({"role": "assistant", "content": text[:2]}),
        chunk({"content": text[2:]}, "stop"),
    ]


def call_chunks() -> list[bytes]:
    """A text, and a call of ``add`` whose arguments come in two pieces."""
    begin = {"index": 0, "id": "call_1", "type": "function"}
    begin["function"] = {"name": "add", "arguments": ""}
    return [
        chunk({"role": "assistant", "content": "Adding."}),
        chunk({"tool_calls": [begin]}),
        *(
            chunk({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
            for part in ('{"a": 2', ', "b": 2}')
        ),
        chunk({}, "tool_calls"),
    ]


def error_of_chat(code: int, text: str, headers: dict[str, str] | None = None) -> Behavior:
    error = {"message": text, "type": "x", "param": None, "code": None}
    return status(code, headers or {}, json.dumps({"error": error}))


def gpt(call: Call, usage: Json = USAGE) -> Behavior:
    """Calls the tool that it is given, says how much it is once it knows, else "four"."""
    asked = call.json
    has_result = asked["messages"][-1]["role"] == "tool"
    calls = "tools" in asked and not has_result
    text = '{"sum": 4}' if "response_format" in asked else "four"
    if asked.get("stream"):
        events = call_chunks() if calls else text_chunks(text)
        # Only who asks is told.
        wants_usage = (asked.get("stream_options") or {}).get("include_usage")
        counted = [_event(choices=[], usage=usage)] if wants_usage else []
        return streams(*events, *counted, DONE)
    document = completion(text, created=1, model="gpt-test", usage=usage)
    if calls:
        made = [{"id": "call_1", "type": "function", "function": FUNCTION}]
        said = {"role": "assistant", "content": "Adding.", "tool_calls": made}
        document["choices"][0] |= {"message": said, "finish_reason": "tool_calls"}
    return answers(document)
