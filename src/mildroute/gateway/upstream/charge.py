"""The charge for one call to an expert."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.experts.usage import TokenUsage
from mildroute.gateway.http.body import ParsedRequest

__all__ = ["Charge", "PricedExpert", "charge_of_call"]

# The endings of a call that determine its charge.
CallEnd = Literal["answered", "unknown"]


class Charge(NamedTuple):
    """Tokens and dollars of one call.

    Attributes:
        tokens_in: Tokens of the request.
        tokens_out: Tokens of the response.
        cached_tokens: Tokens of the request that came from the provider's prompt cache.
        dollars: Cost of all tokens.
        is_reported: Whether the expert reported the tokens; otherwise they are estimates.
    """

    tokens_in: int = 0
    tokens_out: int = 0
    cached_tokens: int = 0
    dollars: float = 0.0
    is_reported: bool = False


class PricedExpert(Protocol):
    """The properties of an expert that determine its charges.

    Attributes:
        max_tokens: Maximum tokens of any call.
    """

    max_tokens: int

    def cost(
        self, tokens_in: int, tokens_out: int, cached_tokens: int = 0, written_tokens: int = 0
    ) -> float:
        """Return the dollars of a response."""
        ...


def charge_of_call(
    expert: PricedExpert,
    parsed: ParsedRequest,
    end: CallEnd,
    *,
    usage: TokenUsage | None = None,
    size: int = 0,
    max_output_tokens: int = 0,
) -> Charge:
    """Return the charge of one call.

    Args:
        expert: The expert that was called.
        parsed: The request.
        end: ``"answered"`` charges the tokens that the response reports, or an estimate from its
            size, up to the maximum that the request allowed. ``"unknown"`` charges the maximum
            cost of the call, because the response did not arrive but may have been generated.
        usage: Token usage that the response reported.
        size: Bytes of the response that arrived.
        max_output_tokens: Maximum tokens of a response if the request sets no limit.
    """
    if parsed.path == "messages/count_tokens":
        # Anthropic counts tokens free of charge.
        return Charge()
    allowed = None if parsed.tokens_out is None else parsed.tokens_out * parsed.choices
    has_text = parsed.path != "embeddings"
    if end == "unknown":
        bound = max_output_tokens if parsed.tokens_out is None else parsed.tokens_out
        tokens_out = min(bound, expert.max_tokens) * parsed.choices if has_text else 0
        # The whole request may be written to the provider's prompt cache, which may cost more.
        written = expert.cost(parsed.tokens_in, tokens_out, written_tokens=parsed.tokens_in)
        dollars = max(expert.cost(parsed.tokens_in, tokens_out), written)
        return Charge(parsed.tokens_in, tokens_out, dollars=dollars)
    usage = usage or TokenUsage()
    tokens_in = parsed.tokens_in if usage.tokens_in is None else usage.tokens_in
    estimate = size // CHARACTERS_PER_TOKEN if has_text else 0
    tokens_out = estimate if usage.tokens_out is None else usage.tokens_out
    if not usage.is_reported and allowed is not None:
        # A server that sends too much must not raise the bill above the limit of the request.
        tokens_out = min(tokens_out, allowed)
    dollars = expert.cost(tokens_in, tokens_out, usage.cached_tokens, usage.written_tokens)
    return Charge(tokens_in, tokens_out, usage.cached_tokens, dollars, usage.is_reported)
