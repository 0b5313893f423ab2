"""Requests and answers of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mildroute.experts.completion import Completion, parse_completion

__all__ = ["DEFAULT_MAX_TOKENS", "VERSION", "message_body", "message_tokens", "parse_message"]

# The version of the API, unchanged since 2023.
VERSION = "2023-06-01"
# Default of max_tokens, which the API requires.
DEFAULT_MAX_TOKENS = 4096
_MAX_TOKENS = 1 << 40
_FINISH_REASONS = {"max_tokens": "length", "refusal": "content_filter", "tool_use": "tool_calls"}
_USAGE = ("prompt_tokens", "completion_tokens")


def message_body(
    model: str, messages: Sequence[Mapping[str, Any]], request: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the body of a request.

    Args:
        model: Name of the model.
        messages: Messages of a chat; system prompts become the field ``system``.
        request: Additional fields, sent unchanged.

    Example:
        >>> chat = [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi"}]
        >>> message_body("claude-opus-5-5", chat, {"max_tokens": 64})["system"]
        'Be terse.'
    """
    system = [message["content"] for message in messages if message["role"] == "system"]
    return {
        "model": model,
        "max_tokens": DEFAULT_MAX_TOKENS,
        **({"system": "\n\n".join(system)} if system else {}),
        **request,
        "messages": [message for message in messages if message["role"] != "system"],
    }


def parse_message(document: Any) -> Completion:
    """Return the answer in a parsed body of any shape.

    Example:
        >>> parse_message({"content": [{"type": "text", "text": "4"}]}).text
        '4'
    """
    blocks = document.get("content") if isinstance(document, dict) else None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return Completion(None, "the body is not a message: content must be a list of blocks")
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    if not all(isinstance(text, str) for text in texts):
        return Completion(None, "the body is not a message: a block of text must have a text")
    tokens = message_tokens(document.get("usage"))
    usage = None if tokens is None else dict(zip(_USAGE, tokens, strict=False))
    reason = document.get("stop_reason")
    has_calls = any(block.get("type") == "tool_use" for block in blocks)
    content = None if has_calls and not texts else "".join(texts)
    finish = _FINISH_REASONS.get(reason, "stop") if isinstance(reason, str) else "stop"
    choice = {"message": {"content": content}, "finish_reason": finish}
    return parse_completion({"choices": [choice], "usage": usage})


def message_tokens(usage: Any) -> tuple[int, int, int, int] | None:
    """Return the tokens in a usage object, or ``None`` if it is missing or implausible.

    Returns:
        Four counts: all tokens of the request, the tokens of the answer, and the tokens of the
        request that were read from the prompt cache and written to it.
    """
    if not isinstance(usage, dict):
        return None
    read = _count(usage, "cache_read_input_tokens") or 0
    written = _count(usage, "cache_creation_input_tokens") or 0
    tokens_in = _count(usage, "input_tokens")
    tokens_out = _count(usage, "output_tokens")
    if tokens_in is None or tokens_out is None:
        return None
    return tokens_in + read + written, tokens_out, read, written


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(name)
    return value if type(value) is int and 0 <= value < _MAX_TOKENS else None
