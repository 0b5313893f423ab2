"""Tables in which an empty score may mean that nobody asked that expert: it must never count as a wrong answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["CHANCE", "COLLECTED", "why_unasked"]

CHANCE = "propensity:"
"""Prefix of the columns of a gateway's log that hold the chance of each expert."""
COLLECTED = b"mildroute.collected"
"""Metadata key of a Parquet file under which ``mildroute collect`` says who was asked and who judged."""


def why_unasked(names: Sequence[str], metadata: Mapping[bytes, bytes]) -> str:
    """Why experts were not asked in a table, and the way out; empty if all were, as far as the table says.

    Args:
        names: Its columns.
        metadata: Of its file.

    Returns:
        Two half-sentences, or nothing.

    Example:
        >>> why_unasked(["score:a", "score:b"], {})
        ''
        >>> why_unasked(["score:a", "propensity:a"], {})[:72]
        "the columns 'propensity:<expert>' say that only one expert answered each"
    """
    if any(name.startswith(CHANCE) for name in names):
        return (
            f"the columns '{CHANCE}<expert>' say that only one expert answered each query; 'mildroute costs from-log' estimates what "
            "each of them costs, and to fit a router, collect all experts on these queries"
        )
    count = _about(metadata).get("experts_per_query")
    if count is None:
        return ""
    return f"each query was given to {count} of the experts only; collect the rest with --experts-per-query all"


def _about(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        about = json.loads(metadata.get(COLLECTED, b"{}"))
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}
