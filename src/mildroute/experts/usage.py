"""Parsing of the token counts that experts report."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeGuard

from mildroute.experts.anthropic import message_tokens

__all__ = ["TokenUsage", "tokens_of_usage", "usage_of_document", "usage_of_event"]

_MAX_TOKENS = 1 << 40
_CACHE_FIELDS = ("cache_read_input_tokens", "cache_creation_input_tokens")


class TokenUsage(NamedTuple):
    """The tokens of a request and its response.

    Attributes:
        tokens_in: Tokens of the request, or ``None`` if not reported.
        tokens_out: Tokens of the response, or ``None`` if unknown.
        cached_tokens: Tokens of the request that came from the provider's prompt cache.
        written_tokens: Tokens of the request that were written to the cache.
        is_counted: Whether the tokens of the response were counted locally instead of reported.
    """

    tokens_in: int | None = None
    tokens_out: int | None = None
    cached_tokens: int = 0
    written_tokens: int = 0
    is_counted: bool = False

    @property
    def is_reported(self) -> bool:
        """Return whether the expert reported all counts."""
        return self.tokens_in is not None and not self.is_counted


def usage_of_document(document: Any) -> Any:
    """Return the usage in a complete response, or ``None``."""
    return document.get("usage") if type(document) is dict else None


def usage_of_event(document: Any) -> Any:
    """Return the usage in an event, at the top level or one level below, or ``None``."""
    if type(document) is not dict:
        return None
    for holder in (document, *document.values()):
        usage = holder.get("usage") if type(holder) is dict else None
        if type(usage) is dict:
            return usage
    return None


def tokens_of_usage(usage: Any) -> TokenUsage | None:
    """Return the tokens in a usage object of any API, or ``None`` if they are implausible."""
    if type(usage) is not dict:
        return None
    if "prompt_tokens" not in usage and any(name in usage for name in _CACHE_FIELDS):
        # Anthropic counts tokens of the cache separately.
        tokens = message_tokens(usage)
        return None if tokens is None else TokenUsage(*tokens)
    tokens_in = usage.get("prompt_tokens", usage.get("input_tokens"))
    tokens_out = usage.get("completion_tokens", usage.get("output_tokens"))
    total = usage.get("total_tokens")
    if tokens_out is None and type(total) is int and type(tokens_in) is int:
        # Embeddings have no output tokens, so their total is the number of input tokens.
        tokens_out = total - tokens_in
    if not _is_count(tokens_in) or not _is_count(tokens_out):
        return None
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    if type(details) is not dict:
        return TokenUsage(tokens_in, tokens_out)
    cached = _part_of(tokens_in, details.get("cached_tokens"))
    # The second name is LiteLLM's, from before OpenAI had one.
    written = details.get("cache_write_tokens", details.get("cache_creation_tokens"))
    return TokenUsage(tokens_in, tokens_out, cached, _part_of(tokens_in - cached, written))


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _MAX_TOKENS


def _part_of(tokens: int, part: Any) -> int:
    """Return a partial count of the tokens, or 0 if it is implausible, which changes no price."""
    return part if type(part) is int and 0 <= part <= tokens else 0
