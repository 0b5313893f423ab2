"""``mildroute evaluate``: measure a stored router on unseen rows and write a report."""

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
    # Experts come first; a cascade's looks follow, and have no columns in a table.
    n_experts = getattr(router, "n_experts", None)
    table = load_table(
        source,
        reading,
        experts=list(router.experts_)[:n_experts],
        answers=n_experts is not None and n_experts < len(router.experts_),
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


def write_report(measured: RouterEvaluation, path: Path, provenance: dict[str, str]) -> None:
    """Write an evaluation's HTML report.

    Example:
        >>> write_report.__name__
        'write_report'
    """
    from mildroute.evaluation.report import report_html
    from mildroute.exceptions import ArgumentError

    if path.exists() and not _is_page(path):
        raise ArgumentError(
            f"a report may overwrite only an HTML page, got {str(path)!r}, which is not one; choose"
            " another path."
        )
    try:
        path.write_text(report_html(measured, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"the report cannot be written to {str(path)!r}: {error.strerror}; choose another path."
        ) from error


def _is_page(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:100].lstrip().lower().startswith(b"<!doctype html")


def _print_evaluation(measured: RouterEvaluation, report: Path | None) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.savings_sentences import shown_limits

    figures, saved = measured.evaluation, measured.savings
    at_price = f"at {measured.price_weight_used:.4g} errors per dollar"
    lines: dict[str, tuple[Interval | None, str]] = {}
    if saved is not None:
        lines[f"saved of {saved.baseline}'s bill"] = (saved.saved, "{:.1%}")
        lines[f"kept of {saved.reference}'s score"] = (saved.kept, "{:.1%}")
    lines |= {
        "dollars per 1,000": (figures.dollars_per_1000, "{:.4g}"),
        "score": (figures.score, "{:.3f}"),
        f"cost, {at_price}": (figures.deferral_loss, "{:.4f}"),
        f"cost of {figures.reference}, best at this price": (figures.best_single_loss, "{:.4f}"),
        "oracle's cost": (figures.oracle_loss, "{:.4f}"),
        "share of the gap to the oracle closed": (figures.gap_closed, "{:.1%}"),
        "worst expert's recall": (figures.worst_recall, "{:.2f}"),
    }
    rows = [
        [name, format_number(value.value, number_format), shown_limits(value, number_format)]
        for name, (value, number_format) in lines.items()
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
