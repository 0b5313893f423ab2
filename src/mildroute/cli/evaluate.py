"""``mildroute evaluate``: a stored router on rows that it has not seen, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli._expand import expand_options
from mildroute.cli._options import AsJson, Seed, Source, TableOptions, TargetOptions
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


@expand_options
def evaluate_router(
    folder: RouterFolder,
    source: Source,
    target: TargetOptions,
    reading: TableOptions,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write a report to this HTML file.")
    ] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a stored ROUTER on a TABLE that it was not fitted on.

    A budget, quality or price weight selects an operating point other than the stored one, without
    refitting.

    Example: mildroute evaluate router held_out.parquet --report report.html
    """
    from mildroute.cli._tables import load_table
    from mildroute.evaluation.router_evaluation import evaluate
    from mildroute.persistence.artifact import load_router

    if report is not None:
        from mildroute.evaluation.frontier_picture import check_report_extra

        check_report_extra()
    router = load_router(folder)
    # The experts come first; looks of a cascade follow, of which a table has no columns.
    experts = getattr(router, "n_experts", None)
    table = load_table(
        source,
        reading,
        experts=list(router.experts_)[:experts],
        answers=experts is not None and experts < len(router.experts_),
    )
    with progress_bar("evaluate") as progress:
        progress(0, 1, f"{len(table):,} queries")
        evaluation = evaluate(router, table, target=target.target, seed=seed)  # type: ignore[arg-type]
    if report is not None:
        write_report(evaluation, report, {"router": str(folder), "table": source})
    if as_json:
        print_json(evaluation.as_dict())
    else:
        _print_evaluation(evaluation, report)


def write_report(measured: RouterEvaluation, target: Path, provenance: dict[str, str]) -> None:
    """Write the HTML report of an assessment.

    Example:
        >>> write_report.__name__
        'write_report'
    """
    from mildroute.evaluation.report import report_html
    from mildroute.exceptions import ArgumentError

    if target.exists() and not _is_page(target):
        raise ArgumentError(
            f"a report may replace only another page, got {str(target)!r}, which is not one; choose"
            " another place."
        )
    try:
        target.write_text(report_html(measured, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"the report cannot be written to {str(target)!r}: {error.strerror}; choose another"
            " place."
        ) from error


def _is_page(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:100].lstrip().lower().startswith(b"<!doctype html")


def _print_evaluation(measured: RouterEvaluation, report: Path | None) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_limits

    figures, saved = measured.evaluation, measured.savings
    at_price = f"at {measured.price_weight_used:.4g} errors a dollar"
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
    print_lines(measured.lines)
    print_table(measured.title, ["figure", "value", "95% interval"], rows)
    _print_shares(figures)
    print_notes(measured.warnings, mark="note:")
    print_notes([*_notes(measured), *([f"report: {report}"] if report else [])], mark="")


def _print_shares(figures: Evaluation) -> None:
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


def _notes(measured: RouterEvaluation) -> list[str]:
    notes = [] if measured.savings is None else [measured.savings.sentence]
    if measured.decision is not None:
        notes.append(f"the router {measured.decision}")
    if measured.far_rows:
        far = (
            f"{measured.far_rows:,} of {len(measured.table):,} inputs"
            f" {'is' if measured.far_rows == 1 else 'are'} unlike the training data"
        )
        notes.append(f"{far}: the best single expert at this price answers there")
    if measured.promise is not None:
        notes.append(
            f"target {measured.promise.target}: {measured.promise.verdict}, measured"
            f" {measured.promise.words}"
        )
    return notes
