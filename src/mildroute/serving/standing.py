"""What is known of an expert at the moment of a decision."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Standing"]


@dataclass(frozen=True)
class Standing:
    """One expert, now.

    Args:
        is_up: Whether its circuit lets a call through.
        has_room: Whether its rate allows a call.
        context: Tokens that it can take, request and answer together, or none if unknown.
        capabilities: What it can do; none if its file does not say, which counts as everything.

    Example:
        >>> Standing().is_up
        True
    """

    is_up: bool = True
    has_room: bool = True
    context: int | None = None
    capabilities: frozenset[str] | None = None
