"""Judges as files and commands describe them: an expert that a judge asks is there by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.experts.kinds import build
from mildroute.experts.spec import ExpertSpec
from mildroute.judges.find import judge_by_name
from mildroute.judges.protocol import Judge

__all__ = ["described_judge"]

_ASKED = "expert"


def described_judge(name: str, settings: Mapping[str, Any], specs: Sequence[ExpertSpec]) -> Judge:
    """A judge whose setting ``expert``, where it has one, is the name of the expert that it asks.

    Args:
        name: Of the judge; see :func:`~mildroute.judges.find.judge_by_name`.
        settings: Of the judge.
        specs: Experts that it may ask; the first of that name is taken.

    Returns:
        The judge; whoever uses it closes the expert.

    Example:
        >>> crowd = ExpertSpec("crowd", "people", {"field": "label"})
        >>> described_judge("graded", {"expert": "crowd", "high": 5}, [crowd]).expert.name
        'crowd'
        >>> described_judge("graded", {"expert": "nobody"}, [crowd])
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: judge 'graded' must ask an expert of experts.yaml, got 'nobody'; known: crowd.
    """
    asked = settings.get(_ASKED)
    if not isinstance(asked, str):
        return judge_by_name(name, **settings)
    for spec in specs:
        if spec.name == asked:
            return judge_by_name(name, **{**settings, _ASKED: build(spec)})
    known = ", ".join(dict.fromkeys(spec.name for spec in specs)) or "none"
    raise ArgumentError(f"judge {name!r} must ask an expert of experts.yaml, got {asked!r:.60}; known: {known}.")
