"""Money against quality as a picture: SVG whose colours follow the page it stands on."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mildroute.evaluation.frontier import Frontier
from mildroute.evaluation.hull import Point, convex_hull

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["frontier_svg"]

_INK, _MUTED, _ACCENT, _OTHER, _GOLD = "#010203", "#010204", "#010205", "#010206", "#010207"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _ACCENT: "--accent", _OTHER: "--other", _GOLD: "--gold"}
"""Colours that stand for variables of the page's style sheet; no drawing would use them by chance."""

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
_APART = 0.25
"""Share of the picture's width that two experts with long names lie apart, so that the names do not overlap."""
_MARGIN, _LETTER = 0.03, 0.0095
"""Shares of the width: between a name and the next point, and of a letter."""
_ABOVE, _NAMES = 0.08, 12
"""Share of the height that lets one name stand above another; names that are written at most."""


def frontier_svg(frontier: Frontier, chosen: Point | None = None, *, size: tuple[float, float] = (7.4, 4.4)) -> str:
    """The frontier of a router with its band, the single experts, the oracle and the chosen operating point.

    Args:
        frontier: What to draw.
        chosen: The operating point in use, or none.
        size: Width and height in inches; text stays the same size, so a small picture is not a shrunken one.

    Returns:
        An ``<svg>`` element whose colours are the variables ``--ink``, ``--muted``, ``--accent``, ``--other`` and ``--gold``.

    Example:
        >>> from mildroute.evaluation.frontier import frontier_of
        >>> frontier = frontier_of([[1, 1], [0, 0]], [[0, 1], [1, 1]], [[0.001, 0.01], [0.001, 0.01]])
        >>> frontier_svg(frontier)[:4], "var(--accent)" in frontier_svg(frontier)
        ('<svg', True)
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_alpha(0)
        _draw(figure.subplots(), frontier, chosen, narrow=size[0] < 5)
        figure.legend(loc="outside upper left", ncols=2 if size[0] < 5 else 5, frameon=False, fontsize=8, columnspacing=1.2)
        buffer = io.StringIO()
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the browser draws the text, with fonts of its own
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None})  # type: ignore[no-untyped-call]
    return _themed(buffer.getvalue())


def _draw(axes: Axes, frontier: Frontier, chosen: Point | None, *, narrow: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.patch.set_alpha(0)
    band = frontier.band
    axes.fill_between(band.dollars_per_1000, band.low, band.high, color=_ACCENT, alpha=0.18, linewidth=0)
    label = "can be operated" if frontier.path else "router, any price"
    axes.plot(band.dollars_per_1000, band.score, color=_ACCENT, linewidth=2, label=label)
    axes.plot([p.dollars_per_1000 for p in frontier.path], [p.score for p in frontier.path], ".", color=_ACCENT, markersize=6)
    _draw_singles(axes, frontier, narrow=narrow)
    axes.plot(frontier.oracle.dollars_per_1000, frontier.oracle.score, "*", color=_GOLD, markersize=12, label="oracle")
    if chosen is not None:
        axes.errorbar(chosen.dollars_per_1000, chosen.score, **_bars(chosen), color=_ACCENT, linewidth=1.4)
        axes.plot(chosen.dollars_per_1000, chosen.score, "D", color=_ACCENT, markersize=9, label="chosen point")
    if _spread(frontier) > 30:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:g}"))
    axes.set_xlabel("dollars per 1,000 queries")
    axes.set_ylabel("score")


def _draw_singles(axes: Axes, frontier: Frontier, *, narrow: bool) -> None:
    bills = [point.dollars_per_1000 for point in frontier.singles]
    # Many points: on a logarithmic axis a mix of two experts is no straight line.
    grid = np.geomspace(min(bills), max(bills), 100) if min(bills) > 0 else np.linspace(min(bills), max(bills), 100)
    mixes = [frontier.random_mix(max(min(bills), bill)) for bill in grid]
    axes.plot([m.dollars_per_1000 for m in mixes], [m.score for m in mixes], ":", color=_OTHER, linewidth=1.2, label="random mix")
    x, y = [p.dollars_per_1000 for p in frontier.singles], [p.score for p in frontier.singles]
    axes.plot(x, y, "o", color=_OTHER, markersize=6, label="single experts")
    for point in _apart(frontier.singles):
        axes.annotate(
            _shortened(_name(point), 14 if narrow else 26),
            (point.dollars_per_1000, point.score),
            textcoords="offset points",
            xytext=(6, -10),
            fontsize=8,
            color=_MUTED,
            parse_math=False,
        )


def _apart(singles: Sequence[Point]) -> list[Point]:
    """Those whose names have room: first the experts that a mix would use, from the best one down, then the others."""
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
    return _place(right) - _place(left) > letters * width or abs(one.score - other.score) > _ABOVE * height


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


def _shortened(name: str, longest: int) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"


def _themed(svg: str) -> str:
    """The bare element, without XML declaration and fixed size, its stand-in colours replaced by variables."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", element, count=1)
    element = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 role="img" aria-label="money against quality"', element, count=1)
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, f"var({variable})")
    return element
