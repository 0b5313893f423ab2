"""``mildroute evaluate``: a stored router on rows that it has not seen, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli._options import (
    AsJson,
    Budget,
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
    columns_of,
    target_of,
)
from mildroute.cli._output import (
    print_json,
    print_lines,
    print_notes,
    print_table,
    progress_bar,
)

if TYPE_CHECKING:
    from mildroute.evaluation.policy_evaluation import Evaluation
    from mildroute.evaluation.resampling import Interval
    from mildroute.evaluation.router_evaluation import RouterEvaluation

__all__ = ["evaluate_router", "write_report"]


RouterFolder = Annotated[Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")]


def evaluate_router(
    folder: RouterFolder,
    source: Source,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a report to this HTML file.")
    ] = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    prices: Prices = None,
    price_unit: PriceUnit = None,
    output_tokens: OutputTokens = None,
    missing: Missing = "raise",
    input_column: InputColumn = None,
    scores: ScoreColumns = None,
    score_scale: ScoreScale = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a stored ROUTER on a TABLE that it was not fitted on.

    A budget, quality or price weight selects an operating point other than the stored one, without
    refitting.

    Example: mildroute evaluate router held_out.parquet --report report.html
    """
    from mildroute.cli._output import load_table
    from mildroute.evaluation.router_evaluation import evaluate
    from mildroute.persistence.artifact import load_router

    target = target_of(budget, quality, price_weight)
    if report is not None:
        from mildroute.evaluation.frontier_picture import check_report_extra

        check_report_extra()
    router = load_router(folder)
    # Behind them are looks of a cascade, which a table has no columns of.
    experts = getattr(router, "n_experts", None)
    table = load_table(
        source,
        experts=list(router.experts_)[:experts],
        prices=prices,
        price_unit=price_unit,
        columns=columns_of(input_column, scores, score_scale),
        output_tokens=output_tokens,
        missing=missing,
        answers=experts is not None and experts < len(router.experts_),
    )
    with progress_bar("evaluate") as tell:
        tell(0, 1, f"{len(table):,} queries")
        found = evaluate(router, table, target=target, seed=seed)  # type: ignore[arg-type]
    if report is not None:
        write_report(found, report, {"router": str(folder), "table": source})
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found, report)


def write_report(found: RouterEvaluation, target: Path, provenance: dict[str, str]) -> None:
    """Write the HTML report of an assessment.

    Example:
        >>> write_report.__name__
        'write_report'
    """
    from mildroute.evaluation.report import report_html
    from mildroute.exceptions import ArgumentError

    if target.exists() and not _is_page(target):
        raise ArgumentError(
            f"a report may replace only another page, got {str(target)!r}, which is none; choose"
            " another place."
        )
    try:
        target.write_text(report_html(found, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"the report cannot be written to {str(target)!r}: {error.strerror}; choose another"
            " place."
        ) from error


def _is_page(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:100].lstrip().lower().startswith(b"<!doctype html")


def _show(found: RouterEvaluation, report: Path | None) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_limits

    figures, saved = found.evaluation, found.savings
    at_price = f"at {found.price_weight_used:.4g} errors a dollar"
    lines: dict[str, tuple[Interval | None, str]] = {}
    if saved is not None:
        lines[f"saved of the bill of {saved.baseline}"] = (saved.saved, "{:.1%}")
        lines[f"kept of the score of {saved.reference}"] = (saved.kept, "{:.1%}")
    lines |= {
        "dollars per 1,000": (figures.dollars_per_1000, "{:.4g}"),
        "score": (figures.score, "{:.3f}"),
        f"cost, {at_price}": (figures.deferral_loss, "{:.4f}"),
        f"cost of {figures.reference}, best at this price": (figures.best_single_loss, "{:.4f}"),
        "cost of the oracle": (figures.oracle_loss, "{:.4f}"),
        f"way from {figures.reference} to the oracle": (figures.gap_closed, "{:.1%}"),
        "worst expert's recall": (figures.worst_recall, "{:.2f}"),
    }
    rows = [
        [name, format_number(value.value, form), shown_limits(value, form)]
        for name, (value, form) in lines.items()
        if value is not None
    ]
    print_lines(found.lines)
    print_table(found.title, ["figure", "value", "95% interval"], rows)
    _show_shares(figures)
    print_notes(found.warnings, mark="note:")
    print_notes([*_notes(found), *([f"report: {report}"] if report else [])], mark="")


def _show_shares(figures: Evaluation) -> None:
    from mildroute._format import format_number

    shares = [
        [
            row.name,
            f"{row.share:.1%}",
            f"{row.oracle_share:.1%}",
            format_number(row.recall.value, "{:.2f}"),
        ]
        for row in figures.per_expert
    ]
    print_table(
        "",
        ["expert", "router sends", "oracle sends", "recall"],
        sorted(shares, key=lambda row: -float(row[1].rstrip("%"))),
    )


def _notes(found: RouterEvaluation) -> list[str]:
    notes = [] if found.savings is None else [found.savings.sentence]
    if found.decision is not None:
        notes.append(f"the router {found.decision}")
    if found.far_rows:
        far = (
            f"{found.far_rows:,} of {len(found.table):,} inputs"
            f" {'is' if found.far_rows == 1 else 'are'} unlike the training data"
        )
        notes.append(f"{far}: the best single expert at this price answers there")
    if found.promise is not None:
        notes.append(
            f"target {found.promise.target}: {found.promise.verdict}, measured"
            f" {found.promise.words}"
        )
    return notes
