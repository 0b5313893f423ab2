"""``mildroute inspect``: what a table holds, and what routing on it could gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mildroute.cli.options import AsJson, Experts, Missing, OutputTokens, Prices, PriceWeight, Source
from mildroute.cli.output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from mildroute.costs.summary import Summary

__all__ = ["inspect_table"]


def inspect_table(
    source: Source,
    experts: Experts = None,
    prices: Prices = None,
    output_tokens: OutputTokens = None,
    price_weight: PriceWeight = 0.0,
    missing: Missing = "refuse",
    as_json: AsJson = False,
) -> None:
    """Look at a cost TABLE: experts, prices, imbalance, and what routing could gain at most.

    Example: mildroute inspect costs.parquet --price-weight 10
    """
    from mildroute.cli.loading import judge_of, load_table, names_in
    from mildroute.costs.summary import summarise

    with progress_bar("inspect") as tell:
        tell(0, 1, source)
        if prices is None and output_tokens is None:
            found = summarise(source, price_weight=price_weight, experts=names_in(experts), missing=missing)
        else:
            table = load_table(source, experts=experts, prices=prices, output_tokens=output_tokens, missing=missing)
            found = summarise(table, price_weight=price_weight)
    judge = judge_of(source)
    if as_json:
        print_json({**found.as_dict(), "judge": judge})
    else:
        _show(found, judge)


def _show(found: Summary, judge: str | None) -> None:
    from mildroute.costs.counted import counted

    rows = [
        [
            expert.name,
            f"{expert.score:.3f}",
            "" if expert.dollars_per_1000 is None else f"{expert.dollars_per_1000:.4g}",
            f"{expert.wins:.1%}",
            f"{expert.wins_alone:.1%}",
        ]
        for expert in sorted(found.experts, key=lambda expert: -expert.score)
    ]
    groups = "" if not found.groups else f", {counted(len(found.groups), 'group')}"
    print_table(
        f"{counted(found.rows, 'query')}{groups}, {len(found.experts)} experts",
        ["expert", "score", "$ per 1,000", "wins", "wins alone"],
        rows,
    )
    at = f" at price weight {found.price_weight:g}" if found.price_weight else ""
    print_notes(
        [
            f"best single expert{at}: {found.best_single}, cost {found.best_single_cost:.4f}",
            f"oracle: score {found.oracle_score:.3f}, cost {found.oracle_cost:.4f}"
            + ("" if found.oracle_dollars_per_1000 is None else f", {found.oracle_dollars_per_1000:.4g} dollars per 1,000"),
            f"routing can gain at most {found.possible_gain:.4f} a query; the experts differ on {found.decided:.1%} of the queries",
            f"imbalance: the most frequent winner wins {found.imbalance:.4g} times as often as the rarest",
            *([] if judge is None else [f"scores: {judge}"]),
            f"content hash: {found.content_hash}",
        ],
        mark="",
    )
    print_notes(found.repairs, mark="repaired:")
    print_notes(found.warnings, mark="note:")
