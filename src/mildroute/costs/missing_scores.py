"""Treatment of missing scores.

An empty score may mean that the expert was not called. Such a score must never count as wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from mildroute.costs.schema import PROPENSITY
from mildroute.exceptions import ArgumentError

__all__ = ["COLLECTED", "Missing", "missing_score_reason", "validate_missing"]


Missing = Literal["raise", "zero", "drop", "keep"]

# Metadata key of a Parquet file under which ``mildroute collect`` records the judges and the
# experts that were called.
COLLECTED = b"mildroute.collected"


def missing_score_reason(names: Sequence[str], metadata: Mapping[bytes, bytes]) -> str:
    """Return the reason why a table lacks some experts' scores, with a remedy.

    The result is empty if the table does not record that some experts were not called.
    """
    if any(name.startswith(PROPENSITY) for name in names):
        return (
            f"the columns '{PROPENSITY}<expert>' say that not all experts answered each query; set"
            " missing (--missing) to keep to learn from those that did, or collect all experts on"
            " these queries"
        )
    count = _collection_facts(metadata).get("experts_per_query")
    if count is None:
        return ""
    return (
        f"each query was given to {count} of the experts only; set missing (--missing) to keep to"
        " learn from those, or collect the rest with --experts-per-query all"
    )


def _collection_facts(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    try:
        about = json.loads(metadata.get(COLLECTED, b"{}"))
    except ValueError:
        return {}
    return about if isinstance(about, dict) else {}


def validate_missing(missing: str) -> Missing:
    """Return the option if it is valid; raise an ArgumentError otherwise."""
    for option in get_args(Missing):
        if missing == option:
            return option  # type: ignore[no-any-return]
    raise ArgumentError(f"missing must be raise, zero, drop or keep, got {missing!r}.")
