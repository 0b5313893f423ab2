"""The result of a fit: the router, its operating point and how it compares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from mildroute.fitting.alternatives import Alternative
from mildroute.fitting.descriptions import (
    describe_router,
    only_expert,
    saving_words,
    who_answers,
    why_constant,
)
from mildroute.fitting.text_router import TextRouter
from mildroute.routers.frontier.curve import CostQualityCurve
from mildroute.routers.frontier.operating_point import OperatingPoint

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

# A figure with the ends of its interval.
Figure: TypeAlias = tuple[float, float, float]
Role: TypeAlias = Literal["your baseline", "simplest alternative", "router"]


@dataclass(frozen=True)
class Line:
    """One way to answer all requests, with its bill and the quality that it keeps.

    Attributes:
        role: Role of the line in the comparison.
        words: Who answers, in words.
        dollars_per_1000: Bill of 1,000 queries.
        saved: Share of the baseline's bill that is saved.
        kept: Share that is kept of the score of the best single expert.
    """

    role: Role
    words: str
    dollars_per_1000: Figure
    saved: Figure
    kept: Figure

    @classmethod
    def from_point(cls, role: Role, words: str, point: OperatingPoint) -> Line:
        """Return the line of an operating point."""
        return cls(
            role,
            words,
            (point.dollars_per_1000, *point.dollars_interval),
            (point.saved, *point.saved_interval),
            (point.kept, *point.kept_interval),
        )


@dataclass(frozen=True)
class NewGroups:
    """The expected results of an operating point on groups that its router was not trained on.

    Attributes:
        groups: Number of groups that were held out, one part at a time.
        kept: Share of the best expert's score that is kept on a new group, with the limits between
            which it lies for 9 of 10 new groups.
        saved: Share of the baseline's bill that is saved on the rows of new groups.
        worst: Group on which the smallest share is kept, and that share.
    """

    groups: int
    kept: Figure
    saved: float
    worst: tuple[str, float]

    @property
    def sentence(self) -> str:
        """Return one sentence on what to expect of a new kind of prompt."""
        kept, low, _ = self.kept
        return (
            f"on a kind of prompt that is not in the table (a new group), expect to keep"
            f" {kept:.0%} of the score, and at least {low:.0%} in 19 of 20 groups; least in"
            f" {self.worst[0]!r}, {self.worst[1]:.0%}"
        )


@dataclass(frozen=True)
class LaterRows:
    """The results on the latest rows of a router that was fitted on the earlier ones.

    Attributes:
        rows: Number of the latest rows.
        promised: Share of the best expert's score that the earlier rows promised to keep.
        kept: Share that was kept on the latest rows.
        saved: Share of the baseline's bill that was saved on the latest rows.
    """

    rows: int
    promised: float
    kept: Figure
    saved: Figure

    @property
    def sentence(self) -> str:
        """Return one sentence on how the promise changes with time."""
        kept, low, high = self.kept
        verdict = (
            "the promise would have been broken"
            if high < self.promised
            else "the promise would have held"
            if low >= self.promised
            else "these rows do not decide whether the promise holds"
        )
        return (
            f"fitted on the earlier rows, it keeps {kept:.1%} [{100 * low:.1f}, {100 * high:.1f}]"
            f" of the score on the latest {self.rows:,}, where {self.promised:.1%} was wanted, and"
            f" saves {self.saved[0]:.0%}: {verdict}"
        )


@dataclass(frozen=True)
class FittedRouter:
    """A fitted router and its operating point.

    Attributes:
        router: The router, ready to be saved.
        point: The operating point as measured on held-out rows, or `None` without dollars.
        note: How the point was chosen, in words.
        warnings: Sentences that the user must know.
        lines: Today's bill, the simplest alternative and the router, side by side; empty without
            dollars.
        new_groups: Expected results on a group that is not in the table, or `None`.
        later: Results on the latest rows of a router that was fitted on earlier ones, or `None`.

    Example:
        >>> FittedRouter(TextRouter(), None, "no dollars").note
        'no dollars'
    """

    router: TextRouter
    point: OperatingPoint | None
    note: str
    warnings: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    new_groups: NewGroups | None = None
    later: LaterRows | None = None

    @property
    def headline(self) -> str | None:
        """Summarize the savings in one sentence, or explain why there are none.

        `None` without dollars.
        """
        point, names = self.point, list(self.router.experts_)
        if point is None:
            return None
        only = only_expert(point)
        if only is None:
            return saving_words(point, names)
        alone = (
            ""
            if only == point.baseline
            else f" by routing ({names[only]} alone {saving_words(point, names)})"
        )
        reason = why_constant(self.router.router_, point, self.router.target)
        return f"this router always picks {names[only]}: nothing is gained{alone}; {reason}"

    def card(self, table: CostTable) -> dict[str, Any]:
        """Return the parts of a model card beyond the router: operating point, rows and prices."""
        about = describe_router(self.router)
        description = "; ".join(f"{title}: {value}" for title, value in about.items())
        card: dict[str, Any] = {
            "notes": f"Operating point: {self.note}. {description[:1].upper()}{description[1:]}.",
            "rows": len(table),
        }
        if table.prices is not None:
            listed = {
                name: {"input": price.input, "output": price.output}
                for name, price in table.prices.prices.items()
            }
            dated = {"date": table.prices.date, "source": table.prices.source}
            card["prices"] = {key: value for key, value in dated.items() if value} | {
                "unit": "dollars per million tokens",
                "experts": {name: listed[name] for name in table.experts},
            }
        return card


def three_lines(
    curve: CostQualityCurve,
    names: Sequence[str],
    alternative: tuple[Alternative, OperatingPoint],
    point: OperatingPoint,
    queries: int,
) -> tuple[Line, Line, Line]:
    """Return today's bill, the simplest alternative and the router, each with its figures."""
    today = curve.point(curve.baseline_index, point.confidence, queries)
    most = "" if curve.baseline is not None else ", the most expensive"
    simple, measured = alternative
    return (
        Line.from_point("your baseline", f"all to {names[today.baseline]}{most}", today),
        Line.from_point("simplest alternative", simple.words(names), measured),
        Line.from_point("router", who_answers(point, names), point),
    )
