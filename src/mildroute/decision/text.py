"""The part of a long input that is encoded."""

from __future__ import annotations

__all__ = ["truncate"]


def truncate(text: str, max_chars: int) -> str:
    """Return the beginning and the end of a long text, because a question often stands last."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars // 2]}\n{text[-(max_chars // 2) :]}"
