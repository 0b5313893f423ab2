"""Store a fitted router, and print its savings, operating point and method."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mildroute.cli._output import (
    print_json,
    print_lines,
    print_notes,
    print_sentence,
    print_table,
)

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.fitting.result import FittedRouter
    from mildroute.routers.frontier.operating_point import OperatingPoint


def save_fitted(fitted: FittedRouter, out: Path, train: CostTable) -> Path:
    """Store the router with its model card, and return the folder."""
    from mildroute.persistence.artifact import save_router

    return save_router(fitted.router, out, card=fitted.card(train))


def report_fit(
    fitted: FittedRouter,
    folder: Path,
    rows: int,
    *,
    hold_out: str | None = None,
    is_default: bool = True,
    as_json: bool,
) -> None:
    """Print the result of a fit as text or JSON.

    Args:
        fitted: The router and its operating point.
        folder: Folder where the router is stored.
        rows: Number of training rows.
        hold_out: File of held-out rows, or ``None``.
        is_default: Whether the default router was fitted; its method is then not printed.
        as_json: Whether to print JSON.
    """
    if as_json:
        print_json(_as_dict(fitted, folder, rows))
    else:
        _print_fitted(fitted, folder, rows, hold_out, is_default=is_default)


def _as_dict(fitted: FittedRouter, folder: Path, rows: int) -> dict[str, Any]:
    """Return the content of the --json output."""
    from mildroute._format import to_jsonable
    from mildroute.fitting.descriptions import describe_router

    point = fitted.point
    point_fields = None
    if point is not None:
        point_fields = to_jsonable(point) | {
            "price_weight": point.price_weight,
            "is_mixed": point.is_mixed,
        }
    return {
        "router": str(folder),
        "about": describe_router(fitted.router),
        "rows": rows,
        "experts": list(fitted.router.experts_),
        "point": point_fields,
        "note": fitted.note,
        "lines": to_jsonable(fitted.lines),
        "new_groups": to_jsonable(fitted.new_groups),
        "later": to_jsonable(fitted.later),
        "method": getattr(fitted.router.router_, "selection_", None),
        "warnings": list(fitted.warnings),
        "headline": fitted.headline,
    }


def _print_fitted(
    fitted: FittedRouter, folder: Path, rows: int, hold_out: str | None, *, is_default: bool
) -> None:
    from mildroute._format import pluralize
    from mildroute.fitting.descriptions import method_of

    method = "" if is_default else f", by {method_of(fitted.router)}"
    print_lines(fitted.lines)
    if fitted.headline is not None:
        print_sentence(fitted.headline)
    print_sentence(f"router in {folder}, learned from {pluralize(rows, 'query')}{method}")
    if fitted.point is None:
        print_notes([fitted.note], mark="")
    else:
        _print_point(fitted, fitted.point)
    if fitted.new_groups is not None:
        print_notes([fitted.new_groups.sentence], mark="")
    if fitted.later is not None:
        print_notes([fitted.later.sentence], mark="")
    print_notes(fitted.warnings, mark="note:")
    if hold_out is not None:
        print_sentence(f"measure it: mildroute evaluate {folder} {hold_out} --report report.html")


def _describe_method(fitted: FittedRouter, point: OperatingPoint) -> str:
    from mildroute._format import pluralize

    choice: str = fitted.router.router_.selection_
    looks = len(fitted.router.experts_) - fitted.router.n_experts
    if looks:
        return f"a cascade with {pluralize(looks, 'look')} to choose from; without them, {choice}"
    return (
        choice
        if point.uses_router
        else f"single experts alone, which promise the most here; over all budgets, {choice}"
    )


def _print_point(fitted: FittedRouter, point: OperatingPoint) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.resampling import Interval
    from mildroute.evaluation.savings_sentences import shown_interval
    from mildroute.fitting.descriptions import split_words

    score = shown_interval(Interval(point.score, *point.score_interval), "{:.3f}")
    ends = (point.dollars_per_1000, *point.dollars_interval)
    bill, low, high = (format_number(end, "{:.4g}") for end in ends)
    names = list(fitted.router.experts_)
    looks = len(names) - fitted.router.n_experts
    print_notes(
        [
            f"operating point: {fitted.note}",
            f"it {split_words(point, names, looks)}",
            f"method: {_describe_method(fitted, point)}",
            (
                f"expected on further queries: score {score}, {bill} dollars per 1,000 [{low},"
                f" {high}]"
            ),
        ],
        mark="",
    )
    shares = zip(names, point.shares, strict=True)
    print_table(
        "",
        ["expert", "share"],
        [[name, f"{share:.1%}"] for name, share in sorted(shares, key=lambda pair: -pair[1])],
    )
