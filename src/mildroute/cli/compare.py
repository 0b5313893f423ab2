"""``mildroute compare``: routers beside single experts and the oracle, under one protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli.options import AsJson, By, Encoder, Experts, Missing, OutputTokens, Prices, PriceWeight, Seed, Source, TestShare
from mildroute.cli.output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from mildroute.evaluation.comparison import Comparison

__all__ = ["compare_routers", "show_comparison"]


def compare_routers(
    source: Source,
    experts: Experts = None,
    prices: Prices = None,
    output_tokens: OutputTokens = None,
    price_weight: PriceWeight = 0.0,
    encoder: Encoder = "auto",
    router: Annotated[
        list[str] | None, typer.Option("--router", help="Compare this one, too: a router's class, a plug-in or a loss; may be repeated.")
    ] = None,
    test: TestShare = 0.2,
    by: By = "auto",
    seed: Seed = 0,
    missing: Missing = "refuse",
    as_json: AsJson = False,
) -> None:
    """Fit several routers on one part of a TABLE and measure them on the other.

    Example: mildroute compare costs.parquet --price-weight 10
    """
    from mildroute.cli.loading import load_table, split_of
    from mildroute.encoders.named import encoder_named
    from mildroute.evaluation.comparison import compare, default_routers
    from mildroute.routers.named import router_named

    routers = default_routers(seed) | {name: router_named(name, random_state=seed) for name in router or []}
    table = load_table(source, experts=experts, prices=prices, output_tokens=output_tokens, missing=missing)
    with progress_bar("compare") as tell:
        found = compare(
            table,
            routers,
            encoder=encoder_named(encoder),
            price_weight=price_weight,
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
        >>> show_comparison(Comparison((), "MildRouter", "large", ("small", "large"), 80, 20, {}, {}, None))  # doctest: +ELLIPSIS
        80 queries to learn from, 20 to measure...
    """
    from mildroute.costs.counted import counted
    from mildroute.evaluation.wording import shown, shown_interval

    rows = [
        [
            f"{row.name} ({found.best_single})" if row.name == "best single" else row.name,
            shown_interval(row.deferral_loss, "{:.4f}"),
            shown(row.score.value, "{:.3f}"),
            "" if row.dollars_per_1000 is None else shown(row.dollars_per_1000.value, "{:.4g}"),
            shown(row.gap_closed.value, "{:.1%}"),
            shown(row.worst_recall, "{:.2f}"),
            "" if row.holm_p_value is None else _against(row.difference.value if row.difference else 0.0, row.holm_p_value),
        ]
        for row in sorted(found.rows, key=lambda row: row.deferral_loss.value)
    ]
    head = ["router", "cost [95%]", "score", "$ per 1,000", "to oracle", "worst recall", "ours is"]
    print_table(f"{counted(found.train_rows, 'query')} to learn from, {found.test_rows:,} to measure", head, rows)
    print_notes(found.warnings, mark="note:")
    print_notes(
        [
            "cost: error plus price weight times dollars; to oracle: share of the way from the best single expert;",
            "worst recall: lowest share of an expert's wins that are sent to a winner;",
            f"ours: {found.default}, 'better' and 'worse' at 5% with Holm's correction",
        ],
        mark="",
    )


def _against(difference: float, p_value: float) -> str:
    if p_value > 0.05:
        return "not told apart"
    return "better" if difference < 0 else "worse"
