"""Defensive parsing of responses from OpenAI-compatible servers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Completion", "answer_logprob", "answer_text", "parse_completion"]

_MAX_TOKENS = 10**9
_TEXT_PARTS = ("text", "output_text")
_FINISH_REASONS = (
    "stop",
    "length",
    "tool_calls",
    "function_call",
    "content_filter",
    "error",
    "abort",
)


@dataclass(frozen=True)
class Completion:
    """The text of an answer and its tokens, or the reason why there is no text.

    An answer truncated at ``max_tokens`` is still an answer: a judge sees what a user would see.

    Args:
        text: The text; ``None`` if there is a problem.
        problem: Reason why there is no text; empty if there is a text.
        tokens_in: Input tokens as counted by the server; ``None`` if missing or implausible.
        tokens_out: Output tokens as counted by the server; ``None`` if missing or implausible.
        logprob: Mean log-probability of the answer's tokens, or ``None`` if it is not reported.
    """

    text: str | None
    problem: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    logprob: float | None = None


def parse_completion(document: Any) -> Completion:
    """Return the answer in a parsed body of /chat/completions or /completions.

    Args:
        document: Parsed JSON, of any shape.

    Returns:
        The text of the first choice, or the problem. Only text from the model is returned.
    """
    if not isinstance(document, dict):
        return Completion(None, f"the body is a JSON {_type_name(document)}, not an object")
    usage = document.get("usage")
    tokens_in = _token_count(usage, "prompt_tokens")
    tokens_out = _token_count(usage, "completion_tokens")
    choice = _first_choice(document)
    if choice is None:
        return Completion(None, "the response has no choices", tokens_in, tokens_out)
    text, problem = _text_or_problem(choice)
    if text is not None:
        text = _repair_surrogates(text)
    return Completion(text, problem, tokens_in, tokens_out, _mean_logprob(choice))


def _first_choice(document: dict[str, Any]) -> dict[str, Any] | None:
    choices = document.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) else None


def _logprob_entries(choice: dict[str, Any]) -> list[Any]:
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    return entries if isinstance(entries, list) else []


def _mean_logprob(choice: dict[str, Any]) -> float | None:
    entries = _logprob_entries(choice)
    logprobs = [entry.get("logprob") for entry in entries if isinstance(entry, dict)]
    # Some servers report slightly positive log-probabilities for near-certain tokens.
    valid = [
        value for value in logprobs if isinstance(value, (int, float)) and -1e9 <= value <= 1e-3
    ]
    if not valid or len(valid) < len(entries):
        return None
    return min(math.fsum(valid) / len(valid), 0.0)


def answer_text(body: bytes | bytearray) -> str:
    """Return the text of an answer, or its tool calls as JSON, or an empty text.

    Args:
        body: Response body of /chat/completions or /completions, which may be a stream of events.
    """
    document = _parse_body(body)
    text = parse_completion(document).text
    if text or not isinstance(document, dict):
        return text or ""
    choice = _first_choice(document)
    message = choice.get("message") if choice is not None else None
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or not calls:
        return ""
    # Tool-call ids differ on every call, so they are dropped.
    functions = [call.get("function") if isinstance(call, dict) else None for call in calls]
    return json.dumps(functions)


def answer_logprob(body: bytes | bytearray) -> float | None:
    """Return the mean log-probability of an answer's tokens, or ``None`` if it is not reported."""
    return parse_completion(_parse_body(body)).logprob


def _parse_body(body: bytes | bytearray) -> Any:
    is_stream = body.lstrip().startswith((b"data:", b"event:", b":"))
    try:
        return _join_events(body) if is_stream else json.loads(body)
    except (ValueError, RecursionError):
        return None


def _join_events(body: bytes | bytearray) -> dict[str, Any]:
    """Return the first choice of a stream of events, in the form of a complete response."""
    texts: list[str] = []
    functions: dict[int, dict[str, str]] = {}
    logprobs: list[Any] = []
    for line in body.split(b"\n"):
        data = line.removeprefix(b"data:").strip()
        if data == line or not data.startswith(b"{"):
            continue
        choice = _first_choice(json.loads(data))
        if choice is None or choice.get("index", 0) != 0:
            continue
        logprobs += _logprob_entries(choice)
        delta = choice.get("delta")
        text = delta.get("content") if isinstance(delta, dict) else choice.get("text")
        texts.append(text if isinstance(text, str) else "")
        parts = delta.get("tool_calls") if isinstance(delta, dict) else None
        for part in parts if isinstance(parts, list) else ():
            _add_tool_call_part(functions, part)
    message: dict[str, Any] = {"content": "".join(texts) or None}
    if functions:
        message["tool_calls"] = [{"function": function} for function in functions.values()]
    return {"choices": [{"message": message, "logprobs": {"content": logprobs}}]}


def _add_tool_call_part(functions: dict[int, dict[str, str]], part: Any) -> None:
    index = part.get("index", 0) if isinstance(part, dict) else None
    added = part.get("function") if isinstance(part, dict) else None
    if not isinstance(index, int) or not isinstance(added, dict):
        return
    function = functions.setdefault(index, {"name": "", "arguments": ""})
    for name in function:
        if isinstance(added.get(name), str):
            function[name] += added[name]


def _text_or_problem(choice: dict[str, Any]) -> tuple[str | None, str]:
    """Return the text of a choice, or ``None`` and the reason why there is no text."""
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else choice.get("text")
    if content is None and isinstance(message, dict) and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    if isinstance(content, list):
        content = _join_parts(content)
    if isinstance(content, str) and (content or choice.get("finish_reason") != "content_filter"):
        return content, ""
    if isinstance(content, str) or content is None:
        # An unknown finish_reason is not repeated, because the server could echo the API key.
        reason = choice.get("finish_reason")
        is_known = reason is None or reason in _FINISH_REASONS
        description = repr(reason) if is_known else "unknown"
        return None, f"the answer has no text (finish_reason {description})"
    return None, f"the answer's text is of type {_type_name(content)}"


def _join_parts(parts: list[Any]) -> str | list[Any]:
    """Join the text parts of a multi-part answer; return malformed parts unchanged.

    Parts of other types, such as reasoning, are skipped.
    """
    if not all(isinstance(part, dict) for part in parts):
        return parts
    texts = [part.get("text") for part in parts if part.get("type") in _TEXT_PARTS]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else parts


def _token_count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_TOKENS:
        return None
    return value


def _repair_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _type_name(value: Any) -> str:
    return type(value).__name__
