"""``mildroute inspect``: summarize a cost table and the possible gain of routing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mildroute.cli._expand import expand_options
from mildroute.cli._options import AsJson, Experts, PriceWeight, Source, TableOptions
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


# Largest table that is read into memory to fit a quick router on a sample.
_MAX_ROWS = 200_000


@expand_options
def inspect_table(
    source: Source,
    reading: TableOptions,
    experts: Experts = None,
    price_weight: PriceWeight = None,
    as_json: AsJson = False,
) -> None:
    """Summarize a cost TABLE: experts, prices, imbalance, and what routing could save.

    Example: mildroute inspect costs.parquet
    """
    from mildroute.cli._tables import check_counted, judge_of, load_table, names_in
    from mildroute.costs.summary import describe

    check_counted(reading.missing)
    names = names_in(experts)
    weight = price_weight or 0.0
    table: CostTable | None = None
    with progress_bar("inspect") as progress:
        progress(0, 1, source)
        if reading == TableOptions(missing=reading.missing):
            # Read the table in batches, so that its size does not matter.
            summary = describe(source, price_weight=weight, experts=names, missing=reading.missing)
        else:
            table = load_table(source, reading, experts=names)
            summary = describe(table, price_weight=weight)
        judge = judge_of(source)
        potential = None
        if summary.oracle_dollars_per_1000 is not None and summary.rows <= _MAX_ROWS:
            if table is None:
                table = _read_again(source, names, reading.missing)
            potential = None if table is None else _potential(table, progress)
    print_errors(summary.notes if reading == TableOptions(missing=reading.missing) else ())
    if as_json:
        print_json({**summary.as_dict(), "judge": judge, "potential": potential})
    else:
        _print_summary(summary, judge, potential)


def _read_again(source: str, experts: list[str] | None, missing: str) -> CostTable | None:
    """Return the table in memory, or ``None`` if it is unfit for learning."""
    from mildroute.costs.table import CostTable
    from mildroute.exceptions import TableError

    try:
        return CostTable.read(source, experts=experts, missing=missing)
    except TableError:
        return None  # the summary already names the problem, such as repeated ids


def _potential(table: CostTable, progress: Callable[[int, int, str], None]) -> Potential | None:
    """Return the possible savings, or ``None`` if the table is unfit for learning."""
    # These imports load scikit-learn, which takes longer than everything else.
    from mildroute.evaluation.ceiling import potential_of
    from mildroute.exceptions import TableError

    try:
        return potential_of(table, progress=progress)
    except TableError:
        return None  # the summary already names the problem, such as repeated ids


def _print_summary(summary: TableSummary, judge: str | None, potential: Potential | None) -> None:
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
        for expert in sorted(summary.experts, key=lambda expert: -expert.score)
    ]
    groups = "" if not summary.groups else f", {pluralize(len(summary.groups), 'group')}"
    print_table(
        f"{pluralize(summary.rows, 'query')}{groups}, {len(summary.experts)} experts",
        ["expert", "score", "$ per 1,000", "wins", "wins alone"],
        rows,
    )
    print_notes(
        [
            *_gains(summary),
            f"the experts differ on {summary.decided:.1%} of the queries",
            (
                f"imbalance: the most frequent winner wins {summary.imbalance:.4g} times as often"
                " as the rarest"
            ),
            *([] if judge is None else [f"scores: {judge}"]),
            f"content hash: {summary.content_hash}",
        ],
        mark="",
    )
    if potential is not None:
        _print_potential(potential, summary)
    print_notes(summary.repairs, mark="repaired:")
    print_notes(summary.warnings, mark="note:")


def _gains(summary: TableSummary) -> list[str]:
    """Return sentences about the best single expert and the oracle.

    Sentences are in dollars if the table has them, and in costs if a price weight is given.
    """
    dollars, best = summary.oracle_dollars_per_1000, summary.best_by_score
    lines = [
        f"best in the table: {best.name}, score {best.score:.3f}{_priced(best.dollars_per_1000)}"
    ]
    if summary.price_weight:
        lines += [
            (
                f"best at price weight {summary.price_weight:g}: {summary.best_single}, cost"
                f" {summary.best_single_cost:.4f}"
            ),
            (
                f"oracle at price weight {summary.price_weight:g}: score"
                f" {summary.oracle_score:.3f}, cost {summary.oracle_cost:.4f}{_priced(dollars)}"
            ),
            (
                f"routing can gain at most {summary.possible_gain:.4f} per query in cost (error"
                " plus price weight times dollars)"
            ),
        ]
        return lines
    savings = ""
    if dollars is not None and best.dollars_per_1000:
        savings = f", {1 - dollars / best.dollars_per_1000:.0%} less than {best.name}"
    lines.append(f"oracle: score {summary.oracle_score:.3f}{_priced(dollars)}{savings}")
    if dollars is None:
        lines.append(
            f"routing can raise the score by at most {100 * summary.possible_gain:.1f} points"
        )
    return lines


def _priced(dollars: float | None) -> str:
    from mildroute._format import format_number

    return "" if dollars is None else f", {format_number(dollars, '{:.4g}')} dollars per 1,000"


def _print_potential(potential: Potential, summary: TableSummary) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_interval

    rows = [
        [
            f"{level.kept:.0%}",
            format_number(level.perfect, "{:.0%}"),
            *([] if level.in_reach is None else [format_number(level.in_reach, "{:.0%}")]),
            *([] if level.router is None else [shown_interval(level.router, "{:.0%}")]),
            format_number(level.random_mix.value, "{:.0%}"),
        ]
        for level in potential.levels
    ]
    has_router = potential.levels[0].router is not None
    router_columns = ["achievable", "by a quick router [95%]"] if has_router else []
    achievable = " achievable: the most that any router could save from the inputs alone;"
    guaranteed = (
        "a quick router and a random mix of two experts keep that score"
        if has_router
        else "a random mix of two experts keeps that score"
    )
    sample = "" if potential.rows == summary.rows else f", on {potential.rows:,} of the rows"
    print_lines(potential.lines)
    print_notes(
        [
            f"possible savings on the bill of {potential.baseline}, the most expensive, while"
            f" keeping a share of the score of {potential.best}, the best in the table{sample}:"
        ],
        mark="",
    )
    print_table("", ["score kept", "upper bound", *router_columns, "by a random mix"], rows)
    print_notes(
        [
            (
                "upper bound: every outcome known in advance;"
                f"{achievable if has_router else ''} {guaranteed} with 95% confidence;"
            ),
            (
                f"for the real figure: mildroute fit --quality {potential.levels[-2].kept:g}"
                " --hold-out held_out.parquet"
            ),
        ],
        mark="",
    )
