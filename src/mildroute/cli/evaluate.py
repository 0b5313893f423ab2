"""``mildroute evaluate``: a stored router on rows that it has not seen, with a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli.options import AsJson, Missing, OutputTokens, Prices, Seed, Source
from mildroute.cli.output import print_json, print_notes, print_table

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
    table = load_table(source, prices=prices, output_tokens=output_tokens, missing=missing)
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

    try:
        target.write_text(report_html(found, provenance=provenance), encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"the report cannot be written to {str(target)!r}: {error.strerror}; choose another place.") from error


def _show(found: Assessment, report: Path | None) -> None:
    from mildroute.evaluation.wording import shown

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
    rows = [
        [name, shown(value.value, form), f"{shown(value.low, form)} to {shown(value.high, form)}"]
        for name, (value, form) in lines.items()
        if value is not None
    ]
    print_table(f"{figures.rows:,} queries, price weight {found.price_weight:.4g}", ["figure", "value", "95% interval"], rows)
    shares = [[row.name, f"{row.share:.1%}", f"{row.oracle_share:.1%}", f"{row.recall.value:.2f}"] for row in figures.per_expert]
    print_table("", ["expert", "router sends", "oracle sends", "recall"], sorted(shares, key=lambda row: -float(row[1].rstrip("%"))))
    notes = [] if found.savings is None else [found.savings.sentence]
    if found.promise is not None:
        measured = found.promise.measured
        verdict = "met" if found.promise.met else "missed"
        notes.append(f"target {found.promise.target}: {verdict} ({measured.value:.4g} [{measured.low:.4g}, {measured.high:.4g}])")
    print_notes(notes + ([f"report: {report}"] if report else []), mark="")
