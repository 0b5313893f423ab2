"""``mildroute compare``: compare routers with single experts and the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._options import (
    AsJson,
    Budget,
    By,
    Encoder,
    Experts,
    InputColumn,
    Missing,
    OutputTokens,
    Prices,
    PriceUnit,
    PriceWeight,
    Quality,
    ScoreColumns,
    ScoreScale,
    Seed,
    Source,
    TestShare,
    columns_of,
    target_of,
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


def compare_routers(
    source: Source,
    experts: Experts = None,
    prices: Prices = None,
    price_unit: PriceUnit = None,
    output_tokens: OutputTokens = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    encoder: Encoder = "auto",
    router: _Routers = None,
    test: TestShare = 0.2,
    by: By = "auto",
    seed: Seed = 0,
    missing: Missing = "raise",
    input_column: InputColumn = None,
    scores: ScoreColumns = None,
    score_scale: ScoreScale = None,
    as_json: AsJson = False,
) -> None:
    """Fit several routers on one part of a TABLE and measure them on the other.

    With --budget or --quality, each router is compared at its own operating point for that target.

    Example: mildroute compare costs.parquet --quality 0.95
    """
    from mildroute.cli._output import load_table, split_of
    from mildroute.evaluation.comparison import compare
    from mildroute.persistence.registry import get_encoder

    target = target_of(budget, quality, price_weight)
    at_point = target is not None and target.kind != "price weight"
    routers = _routers(router or [], seed, for_target=at_point)
    reading: dict[str, Any] = {"experts": experts, "prices": prices, "missing": missing}
    reading |= {"price_unit": price_unit, "output_tokens": output_tokens}
    table = load_table(source, columns=columns_of(input_column, scores, score_scale), **reading)
    with progress_bar("compare") as tell:
        found = compare(
            table,
            routers,
            encoder=get_encoder(encoder),
            target=target,
            test=test,
            seed=seed,
            by=split_of(table, by),
            progress=tell,
        )
    if as_json:
        print_json(found.as_dict())
    else:
        show_comparison(found)


def _routers(names: Sequence[str], seed: int, *, for_target: bool) -> dict[str, Any]:
    """Return the usual routers, and any others with these names."""
    from mildroute.evaluation.comparison import default_routers
    from mildroute.persistence.registry import get_router

    routers = default_routers(seed, for_target=for_target)
    usual = {type(each) for each in routers.values()}
    asked = {name: get_router(name, random_state=seed) for name in names}
    return routers | {name: each for name, each in asked.items() if type(each) not in usual}


def show_comparison(found: Comparison) -> None:
    """Print a comparison, sorted by cost or, with a target, by what is saved or kept.

    Example:
        >>> from mildroute.evaluation.comparison import Comparison
        >>> experts = ("small", "large")
        >>> found = Comparison((), "MildRouter", "large", experts, 80, 20, {}, {}, None)
        >>> show_comparison(found)  # doctest: +ELLIPSIS
        80 queries to learn from, 20 to measure...
    """
    if found.points:
        _show_at_target(found)
    else:
        _show_at_price(found)


def _show_at_price(found: Comparison) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_interval

    rows = [
        [
            _name(found, row.name),
            shown_interval(row.deferral_loss, "{:.4f}"),
            format_number(row.score.value, "{:.3f}"),
            (
                ""
                if row.dollars_per_1000 is None
                else format_number(row.dollars_per_1000.value, "{:.4g}")
            ),
            format_number(row.gap_closed.value, "{:.1%}"),
            format_number(row.worst_recall, "{:.2f}"),
            _against(row),
        ]
        for row in sorted(found.rows, key=lambda row: row.deferral_loss.value)
    ]
    head = ["router", "cost [95%]", "score", "$ per 1,000", "to oracle", "worst recall", "ours is"]
    print_table(_title(found), head, rows)
    print_notes(found.warnings, mark="note:")
    print_notes(
        [
            (
                "cost: error plus price weight times dollars; to oracle: share of the way from"
                f" {_name(found, 'best single')};"
            ),
            "worst recall: lowest share of an expert's wins that are sent to a winner;",
            f"ours: {found.default}, 'better' and 'worse' at 5% with Holm's correction",
        ],
        mark="",
    )


def _show_at_target(found: Comparison) -> None:
    """Print a comparison at a target: routers by savings or score, then the baselines."""
    from mildroute.evaluation.savings_sentences import shown_interval

    target = found.settings["target"]
    is_budget = target["kind"] == "budget"
    rows = [
        [
            _name(found, row.name),
            "" if row.saved is None else shown_interval(row.saved, "{:.1%}"),
            "" if row.kept is None else shown_interval(row.kept, "{:.1%}"),
            "" if row.dollars_per_1000 is None else shown_interval(row.dollars_per_1000, "{:.4g}"),
            _against(row),
        ]
        for row in sorted(found.rows, key=lambda row: _order(row, is_budget))
    ]
    print_table(
        _title(found),
        ["router", "saved [95%]", "kept [95%]", "$ per 1,000 [95%]", f"{found.default} is"],
        rows,
    )
    wanted = (
        f"within {target['value']:g} dollars per 1,000 queries"
        if is_budget
        else f"{100 * target['value']:g}% of the score kept"
    )
    print_notes(found.warnings, mark="note:")
    print_notes(
        [
            (
                f"each router at its own operating point for the target: {wanted}, guaranteed on"
                " the training rows with 95% confidence;"
            ),
            (
                f"saved and kept: relative to the bill and the score of {found.best_by_score}, the"
                " best by score;"
            ),
            (
                "coin: the random mix of two experts with the same guarantee; oracle: knows all"
                " outcomes, at the price of auto's point;"
            ),
            (
                "'better' and 'worse' at 5% with Holm's correction, by error plus"
                f" {found.settings['price_weight']:.4g} times dollars"
            ),
        ],
        mark="",
    )


def _order(row: ComparisonRow, is_budget: bool) -> tuple[bool, float]:
    if row.kind == "baseline":
        return True, 0.0
    return False, -(row.score if is_budget or row.saved is None else row.saved).value


def _title(found: Comparison) -> str:
    from mildroute._format import pluralize

    return f"{pluralize(found.train_rows, 'query')} to learn from, {found.test_rows:,} to measure"


def _name(found: Comparison, name: str) -> str:
    """Return the name of a row, with the expert's name for a single expert."""
    if name == "best by score":
        return f"best by score ({found.best_by_score})"
    if name != "best single":
        return name
    priced = bool(
        found.points or found.settings.get("price_weight") or found.settings.get("latency_weight")
    )
    return f"best {'at this price' if priced else 'by score'} ({found.best_single})"


def _against(row: ComparisonRow) -> str:
    if row.holm_p_value is None or row.difference is None:
        return ""
    if row.holm_p_value > 0.05:
        return "not significantly different"
    return "better" if row.difference.value < 0 else "worse"
