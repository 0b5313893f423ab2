"""``mildroute evaluate``: a stored router on rows that it has not seen, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli.options import AsJson, Missing, OutputTokens, Prices, Seed, Source
from mildroute.cli.output import print_json, print_notes, print_table, progress_bar

if TYPE_CHECKING:
    from mildroute.evaluation.assessment import Assessment

__all__ = ["evaluate_router", "write_report"]

RouterFolder = Annotated[Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")]


def evaluate_router(
    folder: RouterFolder,
    source: Source,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report here: one HTML file.")] = None,
    price_weight: Annotated[
        float | None, typer.Option("--price-weight", help="Another operating point than the stored one.", min=0)
    ] = None,
    prices: Prices = None,
    output_tokens: OutputTokens = None,
    missing: Missing = "refuse",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure a stored ROUTER on a TABLE that it has not learnt from.

    Example: mildroute evaluate router held_out.parquet --report report.html
    """
    from mildroute.cli.loading import load_table
    from mildroute.evaluation.assessment import assess
    from mildroute.routers.artifact import load_router

    router = load_router(folder)
    table = load_table(source, experts=list(router.experts_), prices=prices, output_tokens=output_tokens, missing=missing)
    with progress_bar("evaluate") as tell:
        tell(0, 1, f"{len(table):,} queries")
        found = assess(router, table, price_weight=price_weight, seed=seed)  # type: ignore[arg-type]
    if report is not None:
        write_report(found, report, {"router": str(folder), "table": source})
    if as_json:
        print_json(found.as_dict())
    else:
        _show(found, report)


def write_report(found: Assessment, target: Path, provenance: dict[str, str]) -> None:
    """Write the HTML report of an assessment.

    Example:
        >>> write_report.__name__
        'write_report'
    """
    from mildroute.errors import ArgumentError
    from mildroute.evaluation.report import report_html

    if target.exists() and not _is_page(target):
        raise ArgumentError(f"a report may replace only another page, got {str(target)!r}, which is none; choose another place.")
    try:
        target.write_text(report_html(found, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"the report cannot be written to {str(target)!r}: {error.strerror}; choose another place.") from error


def _is_page(path: Path) -> bool:
    return path.is_file() and path.read_bytes()[:100].lstrip().lower().startswith(b"<!doctype html")


def _show(found: Assessment, report: Path | None) -> None:
    from mildroute.evaluation.wording import shown, shown_limits

    figures = found.evaluation
    lines = {
        "score": (figures.score, "{:.3f}"),
        "dollars per 1,000": (figures.dollars_per_1000, "{:.4g}"),
        "cost": (figures.deferral_loss, "{:.4f}"),
        f"cost of {figures.reference} alone": (figures.best_single_loss, "{:.4f}"),
        "cost of the oracle": (figures.oracle_loss, "{:.4f}"),
        "way from best single to oracle": (figures.gap_closed, "{:.1%}"),
        "worst expert's recall": (figures.worst_recall, "{:.2f}"),
    }
    rows = [[name, shown(value.value, form), shown_limits(value, form)] for name, (value, form) in lines.items() if value is not None]
    print_table(found.title, ["figure", "value", "95% interval"], rows)
    shares = [[row.name, f"{row.share:.1%}", f"{row.oracle_share:.1%}", shown(row.recall.value, "{:.2f}")] for row in figures.per_expert]
    print_table("", ["expert", "router sends", "oracle sends", "recall"], sorted(shares, key=lambda row: -float(row[1].rstrip("%"))))
    notes = [] if found.savings is None else [found.savings.sentence]
    if found.promise is not None:
        notes.append(f"target {found.promise.target}: {found.promise.verdict}, measured {found.promise.words}")
    print_notes(found.warnings, mark="note:")
    print_notes(notes + ([f"report: {report}"] if report else []), mark="")
