"""``mildroute demo``: run every step on real data that needs no download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson, Seed
from mildroute.cli._output import print_json, print_notes, progress_bar
from mildroute.cli.compare import show_comparison
from mildroute.cli.evaluate import write_report
from mildroute.exceptions import ArgumentError, MissingExtraError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.comparison import Comparison
    from mildroute.evaluation.router_evaluation import RouterEvaluation

__all__ = ["run_demo"]

_DEMO_PRICE_WEIGHT = 10.0
_DEMO_QUALITY = 0.97
_DEMO_FILES = {"costs.parquet", "held_out.parquet", "report.html", "router"}


_Out: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder for the table, router and report.")
]


def run_demo(
    out: _Out = Path("mildroute-demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Run every step on real data: three classifiers at different prices read handwritten digits.

    Example: mildroute demo
    """
    from mildroute.datasets import digits_table
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.evaluation.router_evaluation import evaluate
    from mildroute.fitting.fit import FitOptions, fit_table
    from mildroute.persistence.artifact import save_router
    from mildroute.routers.frontier.target import Target

    _check_demo_folder(out)
    with progress_bar("train three experts") as progress:
        progress(0, 1, "")
        table = digits_table(seed)
    table.save(out / "costs.parquet")
    comparison = _compare_demo(table, seed)
    train, held_out = table.split(0.2, seed=seed)
    held_out.save(out / "held_out.parquet")
    with progress_bar("fit for any price") as progress:
        options = FitOptions(
            encoder=NumberEncoder(), target=Target("quality", _DEMO_QUALITY), seed=seed
        )
        fitted = fit_table(train, options, progress=progress)
    save_router(fitted.router, out / "router", card={"notes": "Made by mildroute demo."})
    measured = evaluate(fitted.router, held_out, seed=seed)
    provenance = {"router": "router", "table": "held_out.parquet", "made by": "mildroute demo"}
    report, missing_report = str(out / "report.html"), ""
    try:
        write_report(measured, Path(report), provenance)
    except MissingExtraError as error:
        report, missing_report = "", f"none: {error}"
    if as_json:
        print_json(
            {
                "comparison": comparison.as_dict(),
                "assessment": measured.as_dict(),
                "report": report or None,
            }
        )
        return
    _show_demo(comparison, measured, fitted.note, out, report or missing_report)


def _compare_demo(table: CostTable, seed: int) -> Comparison:
    from mildroute.encoders.numbers import NumberEncoder
    from mildroute.evaluation.comparison import compare, default_routers

    names = ("MildRouter", "kNN", "TDEF")
    routers = {name: router for name, router in default_routers(seed).items() if name in names}
    with progress_bar("compare routers") as progress:
        return compare(
            table,
            routers,
            encoder=NumberEncoder(),
            price_weight=_DEMO_PRICE_WEIGHT,
            seed=seed,
            progress=progress,
        )


def _show_demo(
    comparison: Comparison, measured: RouterEvaluation, note: str, out: Path, report: str
) -> None:
    typer.echo(
        "1,797 handwritten digits; a tree, a linear model and a support vector machine at 0.1, 1"
        " and 10 dollars per 1,000."
    )
    show_comparison(comparison)
    print_notes(
        [
            measured.savings.sentence if measured.savings else "",
            f"operating point: {note}",
            f"report: {report}",
            (
                f"next: mildroute inspect {out / 'costs.parquet'}; mildroute evaluate"
                f" {out / 'router'} {out / 'held_out.parquet'}"
            ),
        ],
        mark="",
    )


def _check_demo_folder(out: Path) -> None:
    """Create the demo's folder; refuse one that holds any other files."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in out.iterdir()} - _DEMO_FILES
    except OSError as error:
        raise ArgumentError(
            f"--out must be a folder that can be written to, got {str(out)!r}: {error.strerror}."
        ) from error
    if others:
        raise ArgumentError(
            f"--out must be a new folder or an earlier demo's, got {str(out)!r} with"
            f" {sorted(others)[0]!r}; choose another."
        )
