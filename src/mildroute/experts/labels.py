"""Conversion of labels to text, so that labels of models and tables compare equal."""

from __future__ import annotations

import math
from typing import Any

__all__ = ["label_text"]


def label_text(label: Any) -> str | None:
    """Return a label as text, or ``None`` if the value is not a single label.

    Whole numbers are written without a decimal point.

    Args:
        label: A Python or NumPy text or number.
    """
    if hasattr(label, "item") and getattr(label, "ndim", 0) == 0:
        label = label.item()
    if isinstance(label, float):
        if math.isnan(label):
            return None
        return str(int(label)) if label.is_integer() else repr(label)
    return str(label) if isinstance(label, (str, int)) else None
