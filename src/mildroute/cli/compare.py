"""``mildroute compare``: compare routers with single experts and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._expand import expand_options
from mildroute.cli._options import (
    AsJson,
    Encoder,
    Experts,
    Seed,
    Source,
    SplitOptions,
    TableOptions,
    TargetOptions,
)
from mildroute.cli._output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from mildroute.evaluation.comparison import Comparison, ComparisonRow

__all__ = ["compare_routers", "show_comparison"]


_Routers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--router",
        help="Also compare this router, such as knn, a plug-in or a loss; may be repeated.",
    ),
]


@expand_options
def compare_routers(
    source: Source,
    target: TargetOptions,
    split: SplitOptions,
    reading: TableOptions,
    experts: Experts = None,
    encoder: Encoder = "auto",
    router: _Routers = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Fit several routers on one part of a TABLE and measure them on the other.

    With --budget or --quality, each router is compared at its own operating point for that target.

    Example: mildroute compare costs.parquet --quality 0.95
    """
    from mildroute.cli._tables import load_table, names_in, split_of
    from mildroute.evaluation.comparison import compare
    from mildroute.persistence.named_encoders import get_encoder

    has_target = target.target is not None and target.target.kind != "price weight"
    routers = _routers(router or [], seed, for_target=has_target)
    table = load_table(source, reading, experts=names_in(experts))
    with progress_bar("compare") as progress:
        comparison = compare(
            table,
            routers,
            encoder=get_encoder(encoder),
            target=target.target,
            test=split.test,
            seed=seed,
            by=split_of(table, split.by),
            progress=progress,
        )
    if as_json:
        print_json(comparison.as_dict())
    else:
        show_comparison(comparison)


def _routers(names: Sequence[str], seed: int, *, for_target: bool) -> dict[str, Any]:
    """Return the default routers and the named ones."""
    from mildroute.evaluation.comparison import default_routers
    from mildroute.persistence.named_routers import get_router

    routers = default_routers(seed, for_target=for_target)
    default_types = {type(each) for each in routers.values()}
    named = {name: get_router(name, random_state=seed) for name in names}
    return routers | {name: each for name, each in named.items() if type(each) not in default_types}


def show_comparison(comparison: Comparison) -> None:
    """Print a comparison, sorted by cost or, with a target, by savings or score kept.

    Example:
        >>> from mildroute.evaluation.comparison import Comparison
        >>> experts = ("small", "large")
        >>> comparison = Comparison((), "MildRouter", "large", experts, 80, 20, {}, {}, None)
        >>> show_comparison(comparison)  # doctest: +ELLIPSIS
        80 queries to learn from, 20 to measure...
    """
    if comparison.points:
        _show_at_target(comparison)
    else:
        _show_at_price(comparison)


def _show_at_price(comparison: Comparison) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_interval

    rows = [
        [
            _display_name(comparison, row.name),
            shown_interval(row.deferral_loss, "{:.4f}"),
            format_number(row.score.value, "{:.3f}"),
            (
                ""
                if row.dollars_per_1000 is None
                else format_number(row.dollars_per_1000.value, "{:.4g}")
            ),
            format_number(row.gap_closed.value, "{:.1%}"),
            format_number(row.worst_recall, "{:.2f}"),
            _verdict(row),
        ]
        for row in sorted(comparison.rows, key=lambda row: row.deferral_loss.value)
    ]
    head = ["router", "cost [95%]", "score", "$ per 1,000", "to oracle", "worst recall", "ours is"]
    print_table(_title(comparison), head, rows)
    print_notes(comparison.warnings, mark="note:")
    print_notes(
        [
            (
                "cost: error plus price weight times dollars; to oracle: share of the gap from"
                f" {_display_name(comparison, 'best single')} to the oracle closed;"
            ),
            "worst recall: lowest share of an expert's wins that are sent to a winner;",
            f"ours: {comparison.default}, 'better' and 'worse' at 5% with Holm's correction",
        ],
        mark="",
    )


def _show_at_target(comparison: Comparison) -> None:
    """Print a comparison at a target: routers by savings or score, then the baselines."""
    from mildroute.evaluation.savings_sentences import shown_interval

    target = comparison.settings["target"]
    is_budget = target["kind"] == "budget"
    rows = [
        [
            _display_name(comparison, row.name),
            "" if row.saved is None else shown_interval(row.saved, "{:.1%}"),
            "" if row.kept is None else shown_interval(row.kept, "{:.1%}"),
            "" if row.dollars_per_1000 is None else shown_interval(row.dollars_per_1000, "{:.4g}"),
            _verdict(row),
        ]
        for row in sorted(comparison.rows, key=lambda row: _sort_key(row, is_budget))
    ]
    print_table(
        _title(comparison),
        ["router", "saved [95%]", "kept [95%]", "$ per 1,000 [95%]", f"{comparison.default} is"],
        rows,
    )
    promise = (
        f"within {target['value']:g} dollars per 1,000 queries"
        if is_budget
        else f"{100 * target['value']:g}% of the score kept"
    )
    print_notes(comparison.warnings, mark="note:")
    print_notes(
        [
            (
                f"each router at its own operating point for the target: {promise}, guaranteed on"
                " the training rows with 95% confidence;"
            ),
            (
                "saved and kept: relative to the bill and the score of"
                f" {comparison.best_by_score}, the best in the table;"
            ),
            (
                "random mix of two: the mix of two experts with the same guarantee; oracle: knows"
                " all outcomes, at the price of auto's point;"
            ),
            (
                "'better' and 'worse' at 5% with Holm's correction, by error plus"
                f" {comparison.settings['price_weight']:.4g} times dollars"
            ),
        ],
        mark="",
    )


def _sort_key(row: ComparisonRow, is_budget: bool) -> tuple[bool, float]:
    if row.kind == "baseline":
        return True, 0.0
    return False, -(row.score if is_budget or row.saved is None else row.saved).value


def _title(comparison: Comparison) -> str:
    from mildroute._format import pluralize

    train = pluralize(comparison.train_rows, "query")
    return f"{train} to learn from, {comparison.test_rows:,} to measure"


def _display_name(comparison: Comparison, name: str) -> str:
    """Return the name of a row, with the expert's name for a single expert."""
    if name == "best in the table":
        return f"best in the table ({comparison.best_by_score})"
    if name != "best single":
        return name
    has_price = bool(
        comparison.points
        or comparison.settings.get("price_weight")
        or comparison.settings.get("latency_weight")
    )
    return f"best {'at this price' if has_price else 'in the table'} ({comparison.best_single})"


def _verdict(row: ComparisonRow) -> str:
    if row.holm_p_value is None or row.difference is None:
        return ""
    if row.holm_p_value > 0.05:
        return "not significantly different"
    return "better" if row.difference.value < 0 else "worse"
