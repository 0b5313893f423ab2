"""How a label is written out as text, so that a label of a model and one of a table compare equal."""

from __future__ import annotations

from typing import Any

__all__ = ["label_text"]


def label_text(label: Any) -> str | None:
    """A label as text.

    Args:
        label: A text or a number, also one of NumPy's.

    Returns:
        The text, or none for what is no single label. Whole numbers are written without a point.

    Example:
        >>> import numpy as np
        >>> label_text(np.int64(3)), label_text(3.0), label_text("cat"), label_text(["cat"])
        ('3', '3', 'cat', None)
    """
    plain = label.item() if hasattr(label, "item") and getattr(label, "ndim", 0) == 0 else label
    if isinstance(plain, float):
        if plain != plain:
            return None
        return str(int(plain)) if plain.is_integer() else repr(plain)
    return str(plain) if isinstance(plain, (str, int, bool)) else None
