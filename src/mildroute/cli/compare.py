"""``mildroute compare``: routers beside single experts and the oracle, under one protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli._options import (
    AsJson,
    Budget,
    By,
    Encoder,
    Experts,
    Missing,
    OutputTokens,
    Prices,
    PriceWeight,
    Quality,
    Seed,
    Source,
    TestShare,
    target_of,
)
from mildroute.cli._output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from mildroute.evaluation.comparison import Comparison, ComparisonRow

__all__ = ["compare_routers", "show_comparison"]


def compare_routers(
    source: Source,
    experts: Experts = None,
    prices: Prices = None,
    output_tokens: OutputTokens = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    encoder: Encoder = "auto",
    router: Annotated[
        list[str] | None,
        typer.Option(
            "--router",
            help="Compare this one, too: a router's class, a plug-in or a loss; may be repeated.",
        ),
    ] = None,
    test: TestShare = 0.2,
    by: By = "auto",
    seed: Seed = 0,
    missing: Missing = "raise",
    as_json: AsJson = False,
) -> None:
    """Fit several routers on one part of a TABLE and measure them on the other.

    For a budget or a quality, each router is put on its own frontier and compared at its point for
    the target.

    Example: mildroute compare costs.parquet --quality 0.95
    """
    from mildroute.cli._output import load_table, split_of
    from mildroute.evaluation.comparison import compare, default_routers
    from mildroute.persistence.registry import get_encoder, get_router

    target = target_of(budget, quality, price_weight)
    at_point = target is not None and target.kind != "price weight"
    routers = default_routers(seed, for_target=at_point) | {
        name: get_router(name, random_state=seed) for name in router or []
    }
    table = load_table(
        source, experts=experts, prices=prices, output_tokens=output_tokens, missing=missing
    )
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


def show_comparison(found: Comparison) -> None:
    """Print a comparison, the lowest cost first.

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
    from mildroute.evaluation.cost_savings import shown_interval

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
    """Routers first: the cheapest for a quality, the best for a budget.

    Then what they stand beside.
    """
    from mildroute.evaluation.cost_savings import shown_interval

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
                f"each router at its own operating point for the target: {wanted}, promised on the"
                " rows to learn from with 95% confidence;"
            ),
            (
                f"saved and kept: of the bill and the score of {found.best_by_score}, the best by"
                " score;"
            ),
            (
                "coin: the mix of two experts that promises the same; oracle: knows all costs"
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
    """The name of a row; which single expert it is, and by what it is the best."""
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
