"""What an OpenAI-compatible server said, read without trusting any part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Completion", "completion_of"]

_MOST_TOKENS = 10**9
_TEXT_PARTS = ("text", "output_text")
_FINISHES = ("stop", "length", "tool_calls", "function_call", "content_filter", "error", "abort")


@dataclass(frozen=True)
class Completion:
    """The text of an answer and its tokens, or why there is no text.

    An answer that was cut off at ``max_tokens`` is an answer: a judge sees what a user would see.

    Args:
        text: The text; none if there is a problem.
        problem: Why there is no text.
        tokens_in: As the server counted; none where it did not or wrote no plausible number.
        tokens_out: The same, for the answer.

    Example:
        >>> Completion("4").tokens_in is None
        True
    """

    text: str | None
    problem: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None


def completion_of(document: Any) -> Completion:
    """The answer in a parsed body of /chat/completions or /completions.

    Args:
        document: Parsed JSON, of any shape.

    Returns:
        The text of the first choice, or the problem; never a text that is not the model's.

    Example:
        >>> completion_of({"choices": [{"message": {"content": "4"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 1}})
        Completion(text='4', problem='', tokens_in=9, tokens_out=1)
        >>> completion_of({"choices": [{"message": {"content": 4}}]}).problem
        "the answer's text is of type int"
    """
    if not isinstance(document, dict):
        return Completion(None, f"the body is a JSON {_name(document)} and no object")
    usage = document.get("usage")
    tokens = (_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return Completion(None, "the body holds no choices", *tokens)
    text, problem = _said(choices[0])
    return Completion(None if text is None else _clean(text), problem, *tokens)


def _said(choice: dict[str, Any]) -> tuple[str | None, str]:
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else choice.get("text")
    if content is None and isinstance(message, dict) and isinstance(message.get("refusal"), str):
        content = message["refusal"]
    if isinstance(content, list):
        content = _joined(content)
    if isinstance(content, str) and (content or choice.get("finish_reason") != "content_filter"):
        return content, ""
    if isinstance(content, str) or content is None:
        return None, f"the answer has no text (finish_reason {_finish(choice)})"
    return None, f"the answer's text is of type {_name(content)}"


def _finish(choice: dict[str, Any]) -> str:
    """The reason, if it is a known one: any other text may repeat the key."""
    reason = choice.get("finish_reason")
    return repr(reason) if reason is None or reason in _FINISHES else "unknown"


def _joined(parts: list[Any]) -> str | list[Any]:
    """The texts of an answer in parts; parts that are not text, such as thoughts, are no part of the answer."""
    if not all(isinstance(part, dict) for part in parts):
        return parts
    texts = [part.get("text") for part in parts if part.get("type") in _TEXT_PARTS]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else parts


def _count(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS else None


def _clean(text: str) -> str:
    """Half of a surrogate pair is no character and could not be stored."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _name(value: Any) -> str:
    return type(value).__name__
