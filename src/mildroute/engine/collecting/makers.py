"""How a worker makes its expert and its judge: descriptions travel, built objects and keys never do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from mildroute.experts.kinds import build
from mildroute.experts.protocol import Expert
from mildroute.experts.spec import ExpertSpec
from mildroute.judges.described import described_judge
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
    def of(
        cls, specs: Sequence[ExpertSpec], judge: str, settings: Mapping[str, Any] | None = None, judges: Sequence[ExpertSpec] = ()
    ) -> Makers:
        """From what files and commands say.

        Args:
            specs: The experts.
            judge: Name of the judge.
            settings: Settings of the judge.
            judges: Experts that only judge.

        Returns:
            The makers.
        """
        # Workers have folders of their own, in which a relative path leads elsewhere.
        asked, judging = ([replace(spec, path=spec.path.resolve()) for spec in group] for group in (specs, judges))
        return cls({spec.name: partial(build, spec) for spec in asked}, partial(described_judge, judge, settings or {}, [*judging, *asked]))
