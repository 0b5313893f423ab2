"""The results of a cascade on held-out rows, and the gain from its looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mildroute.evaluation.arrays import Choice
from mildroute.evaluation.held_out_choices import request_keys
from mildroute.evaluation.intervals import Difference, paired_difference
from mildroute.evaluation.measured_decisions import MeasuredDecisions
from mildroute.fitting.targets import without_looks

__all__ = ["LookRow", "SecondLook", "measure_second_look"]


@dataclass(frozen=True)
class SecondLook:
    """The results of a cascade on held-out rows, and the gain from its looks.

    Attributes:
        looks: Looks that the router may take.
        looked_at: Share of the rows on which answers were looked at before the choice.
        calls: Mean number of experts called per row.
        rows: For each look that was taken, and last for routing without looks: name, share, calls,
            score and dollars per 1,000 on its rows.
        plain: The same router without looks, for the same target, on all rows.
        gain: Cost with looks minus cost without, on all rows.
    """

    looks: int
    looked_at: float
    calls: float
    rows: tuple[LookRow, ...]
    plain: LookRow
    gain: Difference


class LookRow(NamedTuple):
    """A group of rows: their share, and their calls, score and dollars per 1,000."""

    name: str
    share: float
    calls: float
    score: float
    dollars_per_1000: float


def measure_second_look(measured: MeasuredDecisions) -> SecondLook | None:
    """Return the effect of looks at answers, or `None` for a router without looks."""
    table = measured.table
    if measured.answers is None or table.dollars is None:
        return None
    dollars = table.dollars
    choice = measured.choice
    experts = measured.experts
    rows = np.arange(len(table))
    path = measured.router.router_.walk(choice, measured.vectors, measured.answers)
    calls = path.is_called.sum(axis=1)

    def look_row(
        name: str, chosen: Choice, calls: NDArray[Any], mask: NDArray[np.bool_]
    ) -> LookRow:
        return LookRow(
            name,
            share=float(mask.mean()),
            calls=float(calls[mask].mean()),
            score=float(table.scores[rows, chosen][mask].mean()),
            dollars_per_1000=float(1000 * dollars[rows, chosen][mask].mean()),
        )

    kinds = [(str(table.experts[k]), choice == k) for k in range(experts, len(table.experts))]
    kinds.append(("without a look", choice < experts))
    plain_router = without_looks(measured.router, measured.target).router_
    plain = plain_router.predict(measured.vectors, request_ids=request_keys(table))
    costs = measured.costs
    return SecondLook(
        looks=measured.looks,
        looked_at=float((choice >= experts).mean()),
        calls=float(calls.mean()),
        rows=tuple(look_row(name, choice, calls, mask) for name, mask in kinds if mask.any()),
        plain=look_row("routing alone", plain, np.ones(len(rows)), rows >= 0),
        gain=paired_difference(
            costs[rows, choice], costs[rows, plain], measured.clusters, seed=measured.seed
        ),
    )
