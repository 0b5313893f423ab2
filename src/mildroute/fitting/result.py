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

# A figure with the bounds of its interval.
Figure: TypeAlias = tuple[float, float, float]
Role: TypeAlias = Literal["your baseline", "simplest alternative", "router"]


@dataclass(frozen=True)
class Line:
    """One way to answer all requests, with its bill and the quality that it keeps.

    Attributes:
        role: Role of the line in the comparison.
        words: A description of which experts answer.
        dollars_per_1000: Bill per 1,000 queries.
        saved: Share of the baseline's bill saved.
        kept: Share of the best single expert's score kept.
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
    """An operating point's expected results on groups that its router was not trained on.

    Attributes:
        groups: Number of held-out groups.
        kept: Share of the best expert's score kept on a new group, with the bounds that hold for
            9 of 10 new groups.
        saved: Share of the baseline's bill saved on new groups.
        worst: The group with the smallest share kept, and that share.
    """

    groups: int
    kept: Figure
    saved: float
    worst: tuple[str, float]

    @property
    def sentence(self) -> str:
        """Describe in one sentence the results to expect on a new kind of prompt."""
        kept, low, _ = self.kept
        return (
            f"on a kind of prompt that is not in the table (a new group), expect to keep"
            f" {kept:.0%} of the score, and at least {low:.0%} in 19 of 20 groups; least in"
            f" {self.worst[0]!r}, {self.worst[1]:.0%}"
        )


@dataclass(frozen=True)
class LaterRows:
    """The results on the latest rows, for a router fitted on the earlier ones.

    Attributes:
        rows: Number of the latest rows.
        promised: Share of the best expert's score that the earlier rows promised to keep.
        kept: Share kept on the latest rows.
        saved: Share of the baseline's bill saved on the latest rows.
    """

    rows: int
    promised: float
    kept: Figure
    saved: Figure

    @property
    def sentence(self) -> str:
        """Describe in one sentence whether the promise holds over time."""
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
            f" of the score on the latest {self.rows:,}, where {self.promised:.1%} was promised,"
            f" and saves {self.saved[0]:.0%}: {verdict}"
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
        later: Results on the latest rows, for a router fitted on the earlier ones, or `None`.

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
        single_expert = only_expert(point)
        if single_expert is None:
            return saving_words(point, names)
        single_expert_note = (
            ""
            if single_expert == point.baseline
            else f" by routing ({names[single_expert]} alone {saving_words(point, names)})"
        )
        reason = why_constant(self.router.router_, point, self.router.target)
        return (
            f"this router always picks {names[single_expert]}: nothing is"
            f" gained{single_expert_note}; {reason}"
        )

    def card(self, table: CostTable) -> dict[str, Any]:
        """Return the model card's operating point, number of rows and prices."""
        description_rows = describe_router(self.router)
        description = "; ".join(f"{title}: {value}" for title, value in description_rows.items())
        card: dict[str, Any] = {
            "notes": f"Operating point: {self.note}. {description[:1].upper()}{description[1:]}.",
            "rows": len(table),
        }
        if table.prices is not None:
            token_prices = {
                name: {"input": price.input, "output": price.output}
                for name, price in table.prices.prices.items()
            }
            source = {"date": table.prices.date, "source": table.prices.source}
            card["prices"] = {key: value for key, value in source.items() if value} | {
                "unit": "dollars per million tokens",
                "experts": {name: token_prices[name] for name in table.experts},
            }
        return card


def three_lines(
    curve: CostQualityCurve,
    names: Sequence[str],
    alternative: tuple[Alternative, OperatingPoint],
    point: OperatingPoint,
    queries: int,
) -> tuple[Line, Line, Line]:
    """Return the lines for the baseline, the simplest alternative and the router."""
    baseline_point = curve.point(curve.baseline_index, point.confidence, queries)
    most_expensive_note = "" if curve.baseline is not None else ", the most expensive"
    simple, measured = alternative
    return (
        Line.from_point(
            "your baseline",
            f"all to {names[baseline_point.baseline]}{most_expensive_note}",
            baseline_point,
        ),
        Line.from_point("simplest alternative", simple.words(names), measured),
        Line.from_point("router", who_answers(point, names), point),
    )
