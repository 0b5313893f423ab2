"""``mildroute inspect``: summarize a cost table and the possible gain of routing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mildroute.cli._options import (
    AsJson,
    Experts,
    InputColumn,
    Missing,
    OutputTokens,
    Prices,
    PriceUnit,
    PriceWeight,
    ScoreColumns,
    ScoreScale,
    Source,
    columns_of,
)
from mildroute.cli._output import (
    print_errors,
    print_json,
    print_lines,
    print_notes,
    print_table,
    progress_bar,
)

if TYPE_CHECKING:
    from mildroute.costs.summary import TableSummary
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.ceiling import Potential

__all__ = ["inspect_table"]


# Maximum rows of a table that is read into memory to fit a quick router on a sample.
_MOST_ROWS = 200_000


def inspect_table(
    source: Source,
    experts: Experts = None,
    prices: Prices = None,
    price_unit: PriceUnit = None,
    output_tokens: OutputTokens = None,
    price_weight: PriceWeight = None,
    missing: Missing = "raise",
    input_column: InputColumn = None,
    scores: ScoreColumns = None,
    score_scale: ScoreScale = None,
    as_json: AsJson = False,
) -> None:
    """Summarize a cost TABLE: experts, prices, imbalance, and what routing could save.

    Example: mildroute inspect costs.parquet
    """
    from mildroute.cli._output import check_counted, judge_of, load_table, names_in
    from mildroute.costs.summary import describe

    check_counted(missing)
    columns = columns_of(input_column, scores, score_scale)
    with progress_bar("inspect") as tell:
        tell(0, 1, source)
        if prices is None and output_tokens is None and price_unit is None and not columns:
            table = None
            found = describe(
                source, price_weight=price_weight or 0.0, experts=names_in(experts), missing=missing
            )
        else:
            table = load_table(
                source,
                experts=experts,
                prices=prices,
                price_unit=price_unit,
                output_tokens=output_tokens,
                missing=missing,
                columns=columns,
            )
            found = describe(table, price_weight=price_weight or 0.0)
        judge = judge_of(source)
        potential = _potential(
            found, table, source, {"experts": names_in(experts), "missing": missing}, tell
        )
    print_errors(() if table is not None else found.notes)
    if as_json:
        print_json({**found.as_dict(), "judge": judge, "potential": potential})
    else:
        _show(found, judge, potential)


def _potential(
    found: TableSummary, table: CostTable | None, source: str, how: dict[str, Any], tell: Any
) -> Potential | None:
    """Return what routing could save.

    Returns ``None`` without dollars, and for tables that are too large or unfit for learning.
    """
    if found.oracle_dollars_per_1000 is None or found.rows > _MOST_ROWS:
        return None
    # These imports load scikit-learn, which takes longer than everything else.
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.ceiling import potential_of
    from mildroute.exceptions import TableError

    try:
        return potential_of(
            CostTable.read(source, **how) if table is None else table, progress=tell
        )
    except TableError:
        return None  # the summary already names the problem, such as repeated ids


def _show(found: TableSummary, judge: str | None, potential: Potential | None) -> None:
    from mildroute._format import format_number, pluralize

    rows = [
        [
            expert.name,
            f"{expert.score:.3f}",
            (
                ""
                if expert.dollars_per_1000 is None
                else format_number(expert.dollars_per_1000, "{:.4g}")
            ),
            f"{expert.wins:.1%}",
            f"{expert.wins_alone:.1%}",
        ]
        for expert in sorted(found.experts, key=lambda expert: -expert.score)
    ]
    groups = "" if not found.groups else f", {pluralize(len(found.groups), 'group')}"
    print_table(
        f"{pluralize(found.rows, 'query')}{groups}, {len(found.experts)} experts",
        ["expert", "score", "$ per 1,000", "wins", "wins alone"],
        rows,
    )
    print_notes(
        [
            *_gains(found),
            f"the experts differ on {found.decided:.1%} of the queries",
            (
                f"imbalance: the most frequent winner wins {found.imbalance:.4g} times as often as"
                " the rarest"
            ),
            *([] if judge is None else [f"scores: {judge}"]),
            f"content hash: {found.content_hash}",
        ],
        mark="",
    )
    if potential is not None:
        _show_potential(potential, found)
    print_notes(found.repairs, mark="repaired:")
    print_notes(found.warnings, mark="note:")


def _gains(found: TableSummary) -> list[str]:
    """Return sentences about the best single expert and the oracle.

    Sentences are in dollars if the table has them, and in costs if a price weight is given.
    """
    bill, best = found.oracle_dollars_per_1000, found.best_by_score
    lines = [f"best by score: {best.name}, score {best.score:.3f}{_priced(best.dollars_per_1000)}"]
    if found.price_weight:
        lines += [
            (
                f"best at price weight {found.price_weight:g}: {found.best_single}, cost"
                f" {found.best_single_cost:.4f}"
            ),
            (
                f"oracle at price weight {found.price_weight:g}: score {found.oracle_score:.3f},"
                f" cost {found.oracle_cost:.4f}{_priced(bill)}"
            ),
            (
                f"routing can gain at most {found.possible_gain:.4f} a query in cost (error plus"
                " price weight times dollars)"
            ),
        ]
        return lines
    less = ""
    if bill is not None and best.dollars_per_1000:
        less = f", {1 - bill / best.dollars_per_1000:.0%} less than {best.name}"
    lines.append(f"oracle: score {found.oracle_score:.3f}{_priced(bill)}{less}")
    if bill is None:
        lines.append(
            f"routing can raise the score by at most {100 * found.possible_gain:.1f} points"
        )
    return lines


def _priced(bill: float | None) -> str:
    from mildroute._format import format_number

    return "" if bill is None else f", {format_number(bill, '{:.4g}')} dollars per 1,000"


def _show_potential(potential: Potential, found: TableSummary) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_interval

    rows = [
        [
            f"{level.kept:.0%}",
            format_number(level.perfect, "{:.0%}"),
            *([] if level.in_reach is None else [format_number(level.in_reach, "{:.0%}")]),
            *([] if level.router is None else [shown_interval(level.router, "{:.0%}")]),
            format_number(level.coin.value, "{:.0%}"),
        ]
        for level in potential.levels
    ]
    is_tried = potential.levels[0].router is not None
    tried = ["in reach", "by a quick router [95%]"] if is_tried else []
    known = " in reach: if their chances were known as far as inputs tell;" if is_tried else ""
    sure = (
        "a quick router and a coin keep that score"
        if tried
        else "a coin between two experts keeps that score"
    )
    drawn = "" if potential.rows == found.rows else f", on {potential.rows:,} of the rows"
    print_lines(potential.lines)
    print_notes(
        [
            f"possible savings on the bill of {potential.baseline}, the most expensive, while"
            f" keeping a share of the score of {potential.best}, the best in the table{drawn}:"
        ],
        mark="",
    )
    print_table("", ["score kept", "at most", *tried, "by a coin"], rows)
    print_notes(
        [
            f"at most: if all outcomes were known;{known} {sure} with 95% confidence;",
            (
                f"for the real figure: mildroute fit --quality {potential.levels[-2].kept:g}"
                " --hold-out held_out.parquet"
            ),
        ],
        mark="",
    )
