"""How a worker makes its expert and its judge: descriptions travel, built objects and keys never do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mildroute.experts.kinds import build
from mildroute.experts.protocol import Expert
from mildroute.experts.spec import ExpertSpec
from mildroute.judges.find import judge_by_name
from mildroute.judges.protocol import Judge

__all__ = ["Makers"]


@dataclass(frozen=True)
class Makers:
    """Functions that can be sent to another machine and called there.

    Args:
        experts: What makes each expert, by its name.
        judge: What makes the judge.

    Example:
        >>> makers = Makers.of([ExpertSpec("crowd", "people", {"field": "label"})], "exact")
        >>> makers.experts["crowd"]().name, makers.judge().name
        ('crowd', 'exact')
    """

    experts: Mapping[str, Callable[[], Expert]]
    judge: Callable[[], Judge]

    @classmethod
    def of(cls, specs: Sequence[ExpertSpec], judge: str, settings: Mapping[str, Any] | None = None) -> Makers:
        """From what files and commands say.

        Args:
            specs: The experts.
            judge: Name of the judge.
            settings: Settings of the judge.

        Returns:
            The makers.
        """
        # Workers have folders of their own, in which a relative path leads elsewhere.
        here = {spec.name: replace(spec, path=spec.path.resolve()) for spec in specs}
        return cls({name: partial(build, spec) for name, spec in here.items()}, partial(judge_by_name, judge, **(settings or {})))
