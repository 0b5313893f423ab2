"""The plot of cost against quality, as SVG whose colors follow the surrounding page."""

from __future__ import annotations

import importlib.util
import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mildroute.evaluation.cost_quality import Point, convex_hull
from mildroute.evaluation.frontier import Frontier
from mildroute.exceptions import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_report_extra", "frontier_svg", "plot_frontier", "shorten"]


def check_report_extra() -> None:
    """Raise if a package that the page needs is missing; call it before a long evaluation."""
    for package in ("jinja2", "matplotlib"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError.for_package(package, extra="report", user="a report or picture")


class _Colors(NamedTuple):
    """The colors of a plot: text, frontier, single experts and oracle."""

    ink: str
    muted: str
    accent: str
    other: str
    gold: str


# Placeholder colors for variables of the page's style sheet; no drawing would use them by chance.
_STAND_INS = _Colors("#010203", "#010204", "#010205", "#010206", "#010207")

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "mildroute",
    "font.family": "sans-serif",
    "axes.edgecolor": _STAND_INS.muted,
    "axes.labelcolor": _STAND_INS.ink,
    "text.color": _STAND_INS.ink,
    "xtick.color": _STAND_INS.muted,
    "ytick.color": _STAND_INS.muted,
    "xtick.labelcolor": _STAND_INS.ink,
    "ytick.labelcolor": _STAND_INS.ink,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
# Name of the group of invisible markers.
_SPOTS = "spots"
# Minimum distance of two experts with long names, as a share of the plot's width, so that their
# names do not overlap.
_MAX_LABEL_WIDTH = 0.25
# Shares of the width: between a name and the next point, and of one letter.
_MARGIN = 0.03
_LETTER = 0.0095
# Share of the height at which one name fits above another; maximum number of names.
_ABOVE = 0.08
_NAMES = 12


def plot_frontier(
    frontier: Frontier, chosen: Point | None = None, *, ax: Axes | None = None
) -> Axes:
    """Plot the frontier of a router with its band, in the user's own style of Matplotlib.

    Args:
        frontier: The frontier to draw, such as :attr:`RouterEvaluation.frontier`.
        chosen: The operating point in use, such as :attr:`RouterEvaluation.chosen`, or `None`.
        ax: Axes to draw on; defaults to those of a new figure.

    Returns:
        The axes, with single experts, random mixes and the oracle alongside the frontier.
    """
    check_report_extra()
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    axes = plt.subplots(layout="constrained")[1] if ax is None else ax
    text = mpl.rcParams["text.color"]
    _draw(axes, frontier, chosen, _Colors(text, text, "C0", "C1", "C2"), narrow=False)
    axes.legend()
    return axes


def frontier_svg(
    frontier: Frontier,
    chosen: Point | None = None,
    *,
    size: tuple[float, float] = (7.4, 4.4),
    spots: Sequence[Point] = (),
) -> str:
    """Draw the frontier of a router with its band.

    The plot also shows the single experts, the oracle and the chosen operating point.

    Args:
        frontier: The frontier to draw.
        chosen: The operating point in use, or `None`.
        size: Width and height in inches; text keeps its size, so that a small plot is not a
            shrunken one.
        spots: Points to draw as invisible markers in a group of the class ``spots``, in this order,
            for the script of the page.

    Returns:
        An ``<svg>`` element whose colors are the variables ``--ink``, ``--muted``, ``--accent``,
        ``--other`` and ``--gold``.
    """
    check_report_extra()
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        _draw(axes, frontier, chosen, _STAND_INS, narrow=size[0] < 5)
        figure.legend(
            loc="outside upper left",
            ncols=2 if size[0] < 5 else 5,
            frameon=False,
            fontsize=8,
            columnspacing=1.2,
        )
        axes.plot(
            [spot.dollars_per_1000 for spot in spots],
            [spot.score for spot in spots],
            "o",
            markersize=18,
            alpha=0,
            gid=_SPOTS,
        )
        buffer = io.StringIO()
        warnings.filterwarnings(
            "ignore", "Glyph", UserWarning
        )  # the browser draws the text, with its own fonts
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return _themed(buffer.getvalue())


def _draw(
    axes: Axes, frontier: Frontier, chosen: Point | None, colors: _Colors, *, narrow: bool
) -> None:
    from matplotlib.ticker import FuncFormatter

    band = frontier.band
    accent = colors.accent
    axes.fill_between(
        band.dollars_per_1000, band.low, band.high, color=accent, alpha=0.18, linewidth=0
    )
    label = "can be operated" if frontier.path else "router, any price"
    axes.plot(band.dollars_per_1000, band.score, color=accent, linewidth=2, label=label)
    axes.plot(
        [point.dollars_per_1000 for point in frontier.path],
        [point.score for point in frontier.path],
        ".",
        color=accent,
        markersize=6,
    )
    _draw_singles(axes, frontier, colors, narrow=narrow)
    oracle = frontier.oracle
    axes.plot(
        oracle.dollars_per_1000, oracle.score, "*", color=colors.gold, markersize=12, label="oracle"
    )
    if chosen is not None:
        bill, score = chosen.dollars_per_1000, chosen.score
        axes.errorbar(bill, score, **_bars(chosen), color=accent, linewidth=1.4)
        axes.plot(bill, score, "D", color=accent, markersize=9, label="in use")
    if _spread(frontier) > 30:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _index: f"{value:g}"))
    axes.set_xlabel("dollars per 1,000 queries")
    axes.set_ylabel("score")


def _draw_singles(axes: Axes, frontier: Frontier, colors: _Colors, *, narrow: bool) -> None:
    x = [point.dollars_per_1000 for point in frontier.singles]
    y = [point.score for point in frontier.singles]
    # Many points, because on a logarithmic axis a mix of two experts is not a straight line.
    spaced = np.geomspace if min(x) > 0 else np.linspace
    mixes = [frontier.random_mixture(max(min(x), bill)) for bill in spaced(min(x), max(x), 100)]
    axes.plot(
        [m.dollars_per_1000 for m in mixes],
        [m.score for m in mixes],
        ":",
        color=colors.other,
        linewidth=1.2,
        label="random mix",
    )
    axes.plot(x, y, "o", color=colors.other, markersize=6, label="single experts")
    for point in _labeled_points(frontier.singles):
        axes.annotate(
            shorten(_name(point), 14 if narrow else 26),
            (point.dollars_per_1000, point.score),
            textcoords="offset points",
            xytext=(6, -10),
            fontsize=8,
            color=colors.muted,
            parse_math=False,
        )


def _labeled_points(singles: Sequence[Point]) -> list[Point]:
    """Return the single experts whose names fit.

    First come the experts that a mix would use, from the best one down, then the others.
    """
    hull = convex_hull(singles)[::-1]
    rest = sorted((point for point in singles if point not in hull), key=lambda point: -point.score)
    width = max(float(np.ptp([_log_bill(point) for point in singles])), 1e-12)
    height = max(float(np.ptp([point.score for point in singles])), 1e-12)
    labeled: list[Point] = []
    for point in (*hull, *rest):
        if all(_have_room(point, other, width, height) for other in labeled):
            labeled.append(point)
    return labeled[:_NAMES]


def _have_room(one: Point, other: Point, width: float, height: float) -> bool:
    """Return whether two names do not overlap; a name stands to the right of its point."""
    left, right = sorted((one, other), key=_log_bill)
    letters = min(_MAX_LABEL_WIDTH, _MARGIN + _LETTER * len(_name(left)))
    return (
        _log_bill(right) - _log_bill(left) > letters * width
        or abs(one.score - other.score) > _ABOVE * height
    )


def _log_bill(point: Point) -> float:
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


def _themed(svg: str) -> str:
    """Return the bare element with its placeholder colors replaced by variables.

    The result has neither an XML declaration nor a fixed size.
    """
    element = svg[svg.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(
        r'(<svg[^>]*?) width="[^"]*"',
        r'\1 role="img" aria-label="money against quality"',
        element,
        count=1,
    )
    for name, color in _STAND_INS._asdict().items():
        element = element.replace(color, f"var(--{name})")
    # Two plots share one page, so keep only ids that the plot itself refers to.
    referred = set(re.findall(r"#([\w-]+)", element))
    element = element.replace(f'id="{_SPOTS}"', f'class="{_SPOTS}"')
    return re.sub(r' id="([^"]*)"', lambda match: match[0] if match[1] in referred else "", element)


def shorten(text: str, longest: int) -> str:
    """Return a text of at most this many characters, ending in an ellipsis if it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
