"""Plots of a fitted router, as matplotlib axes in the caller's own style."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from mildroute._format import format_dollars
from mildroute.evaluation.frontier_picture import check_report_extra
from mildroute.exceptions import ArgumentError
from mildroute.routers._folds import assign_folds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mildroute.costs.table import CostTable
    from mildroute.fitting.result import FittedRouter
    from mildroute.routers.frontier.operating_point import OperatingPoint

__all__ = ["FitPlots"]

_FOLDS = 5


class FitPlots:
    """The plots of a fitted router; each method draws on axes, or creates them, and returns them.

    All of them show rows that the router was not trained on.

    Args:
        fitted: The router and its operating point.
        table: The table that the router was fitted on.
    """

    def __init__(self, fitted: FittedRouter, table: CostTable) -> None:
        self._fitted = fitted
        self._table = table

    def frontier(self, ax: Axes | None = None) -> Axes:
        """Plot score over dollars per 1,000 queries, with single experts and the chosen point."""
        point, curve = self._point("the frontier"), self._fitted.router.router_.curve
        ax = _axes(ax)
        dollars, scores = 1000 * curve.dollars, 1 - curve.errors
        ax.plot(dollars[curve.hull], scores[curve.hull], marker=".", label="router")
        ax.plot(
            dollars[curve.hull_of_singles],
            scores[curve.hull_of_singles],
            "--",
            label="random mix of experts",
        )
        ax.plot(dollars[curve.baselines], scores[curve.baselines], "s", label="single experts")
        for index, name in zip(curve.baselines, self._names(), strict=False):
            ax.annotate(
                _plain(name),
                (dollars[index], scores[index]),
                xytext=(4, -10),
                textcoords="offset points",
            )
        ax.errorbar(
            point.dollars_per_1000,
            point.score,
            yerr=_around(point.score, point.score_interval),
            fmt="*",
            markersize=12,
            label="chosen",
        )
        ax.set(xlabel="dollars per 1,000 queries", ylabel="score")
        ax.margins(x=0.12)
        ax.legend()
        return ax

    def shares(self, ax: Axes | None = None) -> Axes:
        """Plot the share of the queries that each expert answers."""
        point, names = self._point("shares"), self._names()
        ax = _axes(ax)
        order = np.argsort(point.shares)
        ax.barh([_plain(names[index]) for index in order], [point.shares[index] for index in order])
        ax.xaxis.set_major_formatter("{x:.0%}")
        ax.set(xlabel="share of the queries", xlim=(0, 1))
        return ax

    def calibration(self, ax: Axes | None = None, *, bins: int = 8) -> Axes:
        """Plot expected against actual scores of each expert, in bins of equal size.

        The expectation for a row is learned from other rows.

        Args:
            ax: Axes to draw on, or `None` for new ones.
            bins: Number of bins of each expert.
        """
        model = self._fitted.router.outcome_model_
        if model is None:
            raise ArgumentError(
                "calibration needs expected scores, which routers over sparse vectors do not have;"
                " fit with the default encoder."
            )
        table = self._table.take(~np.isnan(self._table.scores).any(axis=1))
        vectors = self._fitted.router.encoder_.transform(table.inputs)
        expected = np.empty(table.scores.shape)
        folds = assign_folds(len(table), _FOLDS, seed=0)
        for fold in range(_FOLDS):
            held_out = folds == fold
            learned = clone(model).fit(vectors[~held_out], 1 - table.scores[~held_out])
            expected[held_out] = learned.expected(vectors[held_out])[0]
        ax = _axes(ax)
        ax.plot([0, 1], [0, 1], "--", color="gray", label="perfectly calibrated")
        for name, forecast, scores in zip(table.experts, expected.T, table.scores.T, strict=True):
            parts = np.array_split(np.argsort(forecast), bins)
            means = [(forecast[part].mean(), scores[part].mean()) for part in parts if len(part)]
            ax.plot(*zip(*means, strict=True), marker="o", label=_plain(name))
        ax.set(xlabel="expected score", ylabel="score", xlim=(0, 1), ylim=(0, 1))
        ax.legend()
        return ax

    def savings(self, ax: Axes | None = None, *, requests_per_month: float = 1_000_000) -> Axes:
        """Plot the monthly bill of the baseline and of the router.

        Args:
            ax: Axes to draw on, or `None` for new ones.
            requests_per_month: Number of queries per month.
        """
        if not 0 < requests_per_month < np.inf:
            raise ArgumentError(
                f"requests_per_month must be a positive number, got {requests_per_month!r:.80}."
            )
        point = self._point("savings")
        factor = requests_per_month / 1000
        base = factor * point.baseline_dollars_per_1000
        low, high = (base * (1 - saved) for saved in point.saved_interval[::-1])
        bill = base * (1 - point.saved)
        ax = _axes(ax)
        bars = ax.bar(
            [_plain(f"all to {self._names()[point.baseline]}"), "routed"],
            [base, bill],
            yerr=[[0, max(bill - low, 0)], [0, max(high - bill, 0)]],
            capsize=4,
        )
        ax.bar_label(bars, [f"${value:,.0f}" for value in (base, bill)], label_type="center")
        ax.set(ylabel=f"dollars a month at {requests_per_month:,.0f} requests")
        ax.set_title(
            f"{format_dollars(base - bill)} a month saved" if base > bill else "nothing saved"
        )
        return ax

    def frontier_image(self) -> str:
        """Return the frontier as an HTML image, without a display."""
        check_report_extra()
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 3.8), layout="constrained")
        self.frontier(figure.subplots())
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        data = base64.b64encode(buffer.getvalue()).decode()
        alt = "Score over dollars per 1,000 queries: router, single experts and the chosen point."
        return f'<img alt="{alt}" src="data:image/svg+xml;base64,{data}">'

    def _names(self) -> list[str]:
        return [str(name) for name in self._fitted.router.experts_]

    def _point(self, picture: str) -> OperatingPoint:
        if self._fitted.point is None:
            raise ArgumentError(
                f"{picture} needs dollars, got a router that was fitted without; give prices."
            )
        return self._fitted.point


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    check_report_extra()
    from matplotlib import pyplot

    return pyplot.subplots(layout="constrained")[1]


def _around(value: float, interval: tuple[float, float]) -> Any:
    return [[max(value - interval[0], 0)], [max(interval[1] - value, 0)]]


def _plain(name: str) -> str:
    """Escape a name so that matplotlib reads no part of it as mathematics."""
    return name.replace("$", r"\$")
