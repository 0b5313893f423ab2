"""The HTML report of an evaluation, and its picture."""

from __future__ import annotations

import datetime
import importlib.util
import io
import platform
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from mildroute._format import as_dollars, format_number, pluralize
from mildroute.evaluation.cost_savings import shown_interval, shown_limits
from mildroute.evaluation.frontier import Frontier, Point, convex_hull
from mildroute.evaluation.intervals import Interval
from mildroute.evaluation.router_evaluation import RouterEvaluation, SecondLook
from mildroute.exceptions import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_report_extra", "frontier_svg", "report_html"]


def check_report_extra() -> None:
    """Raise if a package that the page needs is missing; call it before a long evaluation."""
    for package in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError.for_package(package, extra="report", user="the HTML report")


# Money against quality as a picture: SVG whose colours follow the page it stands on.


_INK, _MUTED, _ACCENT, _OTHER, _GOLD = "#010203", "#010204", "#010205", "#010206", "#010207"
# Colours that stand for variables of the page's style sheet; no drawing would use them by chance.
_VARIABLES = {
    _INK: "--ink",
    _MUTED: "--muted",
    _ACCENT: "--accent",
    _OTHER: "--other",
    _GOLD: "--gold",
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mildroute",
    "font.family": "sans-serif",
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "ytick.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Share of the picture's width that two experts with long names lie apart, so that the names do not
# overlap.
_APART = 0.25
# Shares of the width: between a name and the next point, and of a letter.
_MARGIN, _LETTER = 0.03, 0.0095
# Share of the height that lets one name stand above another; names that are written at most.
_ABOVE, _NAMES = 0.08, 12


def frontier_svg(
    frontier: Frontier, chosen: Point | None = None, *, size: tuple[float, float] = (7.4, 4.4)
) -> str:
    """Draw the frontier of a router with its band.

    Beside it stand the single experts, the oracle and the chosen operating point.

    Args:
        frontier: What to draw.
        chosen: The operating point in use, or none.
        size: Width and height in inches; text stays the same size, so a small picture is not a
            shrunken one.

    Returns:
        An ``<svg>`` element whose colours are the variables ``--ink``, ``--muted``, ``--accent``,
        ``--other`` and ``--gold``.
    """
    check_report_extra()
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        _draw(figure.subplots(), frontier, chosen, narrow=size[0] < 5)
        figure.legend(
            loc="outside upper left",
            ncols=2 if size[0] < 5 else 5,
            frameon=False,
            fontsize=8,
            columnspacing=1.2,
        )
        buffer = io.StringIO()
        warnings.filterwarnings(
            "ignore", "Glyph", UserWarning
        )  # the browser draws the text, with fonts of its own
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return _themed(buffer.getvalue())


def _draw(axes: Axes, frontier: Frontier, chosen: Point | None, *, narrow: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.patch.set_alpha(0)
    band = frontier.band
    axes.fill_between(
        band.dollars_per_1000, band.low, band.high, color=_ACCENT, alpha=0.18, linewidth=0
    )
    label = "can be operated" if frontier.path else "router, any price"
    axes.plot(band.dollars_per_1000, band.score, color=_ACCENT, linewidth=2, label=label)
    axes.plot(
        [p.dollars_per_1000 for p in frontier.path],
        [p.score for p in frontier.path],
        ".",
        color=_ACCENT,
        markersize=6,
    )
    _draw_singles(axes, frontier, narrow=narrow)
    axes.plot(
        frontier.oracle.dollars_per_1000,
        frontier.oracle.score,
        "*",
        color=_GOLD,
        markersize=12,
        label="oracle",
    )
    if chosen is not None:
        axes.errorbar(
            chosen.dollars_per_1000, chosen.score, **_bars(chosen), color=_ACCENT, linewidth=1.4
        )
        axes.plot(
            chosen.dollars_per_1000,
            chosen.score,
            "D",
            color=_ACCENT,
            markersize=9,
            label="chosen point",
        )
    if _spread(frontier) > 30:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.set_xlabel("dollars per 1,000 queries")
    axes.set_ylabel("score")


def _draw_singles(axes: Axes, frontier: Frontier, *, narrow: bool) -> None:
    bills = [point.dollars_per_1000 for point in frontier.singles]
    # Many points: on a logarithmic axis a mix of two experts is no straight line.
    grid = (
        np.geomspace(min(bills), max(bills), 100)
        if min(bills) > 0
        else np.linspace(min(bills), max(bills), 100)
    )
    mixes = [frontier.random_mixture(max(min(bills), bill)) for bill in grid]
    axes.plot(
        [m.dollars_per_1000 for m in mixes],
        [m.score for m in mixes],
        ":",
        color=_OTHER,
        linewidth=1.2,
        label="random mix",
    )
    x, y = [p.dollars_per_1000 for p in frontier.singles], [p.score for p in frontier.singles]
    axes.plot(x, y, "o", color=_OTHER, markersize=6, label="single experts")
    for point in _apart(frontier.singles):
        axes.annotate(
            _shortened_label(_name(point), 14 if narrow else 26),
            (point.dollars_per_1000, point.score),
            textcoords="offset points",
            xytext=(6, -10),
            fontsize=8,
            color=_MUTED,
            parse_math=False,
        )


def _apart(singles: Sequence[Point]) -> list[Point]:
    """Those whose names have room.

    First the experts that a mix would use, from the best one down, then the others.
    """
    hull = convex_hull(singles)[::-1]
    rest = sorted((point for point in singles if point not in hull), key=lambda point: -point.score)
    width = max(float(np.ptp([_place(point) for point in singles])), 1e-12)
    height = max(float(np.ptp([point.score for point in singles])), 1e-12)
    kept: list[Point] = []
    for point in (*hull, *rest):
        if all(_have_room(point, other, width, height) for other in kept):
            kept.append(point)
    return kept[:_NAMES]


def _have_room(one: Point, other: Point, width: float, height: float) -> bool:
    """Whether two names do not overlap; a name stands to the right of its point."""
    left, right = sorted((one, other), key=_place)
    letters = min(_APART, _MARGIN + _LETTER * len(_name(left)))
    return (
        _place(right) - _place(left) > letters * width
        or abs(one.score - other.score) > _ABOVE * height
    )


def _place(point: Point) -> float:
    return float(np.log(max(point.dollars_per_1000, 1e-12)))


def _name(point: Point) -> str:
    return point.name.rpartition("/")[2]


def _bars(point: Point) -> dict[str, Any]:
    bill, score = point.dollars_interval, point.score_interval
    if bill is None or score is None:
        return {}
    return {
        "xerr": [[bill.value - bill.low], [bill.high - bill.value]],
        "yerr": [[score.value - score.low], [score.high - score.value]],
    }


def _spread(frontier: Frontier) -> float:
    bills = [point.dollars_per_1000 for point in frontier.singles]
    return max(bills) / min(bills) if min(bills) > 0 else 1.0


def _shortened_label(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _themed(svg: str) -> str:
    """Return the bare element, its stand-in colors replaced by variables.

    It has neither an XML declaration nor a fixed size.
    """
    element = svg[svg.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(
        r'(<svg[^>]*?) width="[^"]*"',
        r'\1 role="img" aria-label="money against quality"',
        element,
        count=1,
    )
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, f"var({variable})")
    return element


# The report: one HTML file with everything in it, readable on a phone, in the dark and on paper.


_GROUPS_SHOWN = 60
_LONGEST_TEXT = 400


def report_html(
    assessment: RouterEvaluation,
    *,
    title: str = "Routing report",
    provenance: Mapping[str, str] | None = None,
) -> str:
    """The report of an assessment.

    Args:
        assessment: What :func:`~mildroute.evaluation.router_evaluation.evaluate` found.
        title: Heading of the page.
        provenance: Where router and table come from, by name; hash of the table, versions and date
            are added.

    Returns:
        HTML that needs no network.

    Example:
        >>> from mildroute.costs.table import CostTable
        >>> from mildroute.evaluation.router_evaluation import evaluate
        >>> from mildroute._fit import fit
        >>> table = CostTable.from_data({"input": ["add 1 1", "sing a song"] * 40,
        ...                       "score:small": [1, 0] * 40, "score:large": [1, 1] * 40})
        >>> page = report_html(evaluate(fit(table).router, table), title="Sums and songs")
        >>> "<h1>Sums and songs</h1>" in page, "http" in page.replace("http://www.w3.org", "")
        (True, False)
    """
    check_report_extra()
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    template = (
        files("mildroute.evaluation").joinpath("templates/report.html").read_text(encoding="utf-8")
    )
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
        template
    )
    pictures: dict[str, Markup | None] = {"wide_picture": None, "narrow_picture": None}
    if assessment.frontier is not None:
        sizes = {"wide_picture": (7.4, 4.4), "narrow_picture": (3.7, 3.9)}
        # Drawn by us from numbers and escaped names: the only markup that the page does not escape.
        pictures = {
            name: Markup(  # noqa: S704  # nosec B704
                frontier_svg(assessment.frontier, assessment.chosen, size=size)
            )
            for name, size in sizes.items()
        }
    return page.render(
        title=title,
        version=version("mildroute"),
        subtitle=assessment.title,
        scope=_scope(assessment),
        sentence=assessment.savings.sentence if assessment.savings else None,
        warnings=assessment.warnings,
        cards=_cards(assessment),
        caption=_caption(assessment),
        experts=_experts(assessment),
        looks=_looks(assessment),
        groups=_groups(assessment),
        losses=_losses(assessment),
        provenance=list(_provenance(assessment, provenance or {}).items()),
        **pictures,
    )


def _scope(assessment: RouterEvaluation) -> str:
    table = assessment.table
    groups = "" if table.groups is None else f"{len(set(table.groups)):,} groups, "
    looks = assessment.looks
    seen = f" and {pluralize(looks, 'look')}" if looks else ""
    number = f"{len(table.experts) - looks} experts{seen}"
    return f"{groups}{number}; intervals are 95%, over further queries of the same kind"


def _cards(assessment: RouterEvaluation) -> list[dict[str, str]]:
    found, saved, promise = assessment.evaluation, assessment.savings, assessment.promise
    cards = []
    if saved is not None:
        cards += [
            _card(f"of the bill of {saved.reference} saved", saved.saved, "{:.0%}"),
            _card(f"of the score of {saved.reference} kept", saved.kept, "{:.1%}"),
        ]
    if found.dollars_per_1000 is not None:
        cards.append(_card("dollars per 1,000 queries", found.dollars_per_1000, "{:.4g}"))
    cards.append(_card("score", found.score, "{:.3f}"))
    if promise is not None:
        cards.append(
            {
                "name": "target",
                "value": promise.verdict,
                "note": f"{promise.target}; measured {promise.words}",
            }
        )
    way = _card(
        "way from the best single expert at this price to the oracle", found.gap_closed, "{:.1%}"
    )
    if assessment.in_reach is not None:
        way["note"] += f"; {assessment.in_reach:.1%} in reach of inputs alone"
    cards.append(way)
    cards.append(_card("worst expert's recall", found.worst_recall, "{:.2f}"))
    return cards


def _card(name: str, interval: Interval, form: str) -> dict[str, str]:
    return {
        "name": name,
        "value": format_number(interval.value, form),
        "note": shown_limits(interval, form),
    }


def _caption(assessment: RouterEvaluation) -> str:
    chosen = "" if assessment.decision is None else f"The chosen point {assessment.decision}. "
    is_mixed = assessment.point is not None and assessment.point.is_mixed
    worth = "which is what it buys between the two points" if is_mixed else "the price weight there"
    return (
        f"{chosen}The router can be operated anywhere on the solid line: between two dots, requests"
        " are split at random. Its dots were chosen when the router was fitted and are measured on"
        " these rows; the band is 95% at each bill. The dotted line mixes single experts at"
        f" random. Costs below count a dollar as {assessment.price_weight_used:.4g} errors,"
        f" {worth}."
    )


def _experts(assessment: RouterEvaluation) -> dict[str, Any]:
    found = assessment.evaluation
    rows = [
        {
            "name": row.name,
            "share": f"{row.share:.1%}",
            "share_width": round(100 * row.share, 1),
            "oracle_share": f"{row.oracle_share:.1%}",
            "oracle_width": round(100 * row.oracle_share, 1),
            "recall": shown_interval(row.recall, "{:.2f}"),
            "score": f"{row.score:.3f}",
            "dollars": None if row.dollars_per_1000 is None else as_dollars(row.dollars_per_1000),
        }
        for row in sorted(found.per_expert, key=lambda row: -row.share)
    ]
    head = ["expert", "router sends", "oracle sends", "recall", "score alone"]
    calibration = (
        f" Calibration error {found.calibration_error:.3f}."
        if found.calibration_error is not None
        else ""
    )
    note = (
        "Recall: share of the queries that an expert wins (or shares) that went to a winner."
        f" Effective number of experts {found.effective_experts.value:.2f}, the oracle's"
        f" {found.oracle_effective_experts:.2f}.{calibration}"
    )
    if assessment.far_rows:
        are = "row is" if assessment.far_rows == 1 else "rows are"
        note += (
            f" {assessment.far_rows:,} {are} unlike the training data: the best single expert at"
            " this price answers there."
        )
    return {
        "head": head if found.dollars_per_1000 is None else [*head, "per 1,000 alone"],
        "rows": rows,
        "note": note,
    }


def _looks(assessment: RouterEvaluation) -> dict[str, Any] | None:
    """What was looked at and what it bought, for a router with looks."""
    found = assessment.second_look
    if found is None:
        return None
    plain = found.plain
    return {
        "sentence": (
            f"Answers were looked at on {found.looked_at:.1%} of the queries; a query took"
            f" {found.calls:.2f} calls on average. {_bought(assessment, found)}"
        ),
        "head": ["begins with", "queries", "calls", "score", "dollars per 1,000"],
        "rows": [
            [
                row.name,
                f"{row.share:.1%}",
                f"{row.calls:.2f}",
                f"{row.score:.3f}",
                as_dollars(row.dollars_per_1000),
            ]
            for row in (*sorted(found.rows, key=lambda row: -row.share), plain)
        ],
        "note": (
            "Score and dollars are those of the queries in the row, with all calls that were made."
            " The last row is the router without looks on all queries."
        ),
    }


def _bought(assessment: RouterEvaluation, found: SecondLook) -> str:
    """What looks changed against the same router without them, and the verdict on them."""
    gain, plain = found.gain, found.plain
    if gain.high < 0:
        verdict = "looks are worth it"
    elif gain.low > 0:
        verdict = "looks cost more than they bring"
    else:
        verdict = "these rows do not show that looks are worth it"
    return (
        f"The same router without looks, for the same target, has a score of {plain.score:.3f} for"
        f" {as_dollars(plain.dollars_per_1000)} per 1,000 queries. Looks change the cost of a query"
        f" by {shown_interval(gain, '{:+.4f}')} (a dollar counts as"
        f" {assessment.price_weight_used:.4g} errors): {verdict}."
    )


def _groups(assessment: RouterEvaluation) -> dict[str, Any] | None:
    found = assessment.evaluation.per_group
    if len(found) < 2:
        return None
    largest = sorted(found, key=lambda row: -row.rows)[:_GROUPS_SHOWN]
    rows = [
        [
            row.name,
            f"{row.rows:,}",
            f"{row.score:.3f}",
            shown_interval(row.deferral_loss, "{:.3f}"),
            f"{row.best_single_loss:.3f}",
            f"{row.oracle_loss:.3f}",
            row.most_chosen,
        ]
        for row in largest
    ]
    note = "Cost is the error plus the price weight times dollars." + (
        f" The {_GROUPS_SHOWN} largest of {len(found)} groups."
        if len(found) > _GROUPS_SHOWN
        else ""
    )
    head = [
        "group",
        "queries",
        "score",
        "cost",
        f"cost of {assessment.evaluation.reference}, best at this price",
        "cost of oracle",
        "mostly sent to",
    ]
    return {"head": head, "rows": rows, "note": note}


def _losses(assessment: RouterEvaluation) -> list[dict[str, str]]:
    table = assessment.table
    return [
        {
            "query": table.query_ids[row.row],
            "text": _shortened((table.inputs or [])[row.row]),
            "chosen": row.chosen,
            "better": row.best,
            "loss": f"{row.regret:.3f}",
        }
        for row in assessment.evaluation.lost
    ]


def _provenance(assessment: RouterEvaluation, given: Mapping[str, str]) -> dict[str, str]:
    prices = assessment.table.prices
    listed = (
        {}
        if prices is None
        else {
            "prices": (
                ", ".join(filter(None, (prices.source, prices.date))) or "given without source"
            )
        }
    )
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("mildroute", "numpy", "scikit-learn")
    )
    return {
        **given,
        **assessment.about,
        "table's content hash": assessment.table.content_hash,
        **listed,
        "versions": f"{packages}, Python {platform.python_version()}",
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"
