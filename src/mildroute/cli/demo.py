"""``mildroute demo``: the whole way on real data, with nothing to download."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson, Seed
from mildroute.cli._output import print_json, print_notes, progress_bar
from mildroute.cli.compare import show_comparison
from mildroute.cli.evaluate import write_report
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.comparison import Comparison
    from mildroute.evaluation.router_evaluation import RouterEvaluation

__all__ = ["run_demo"]


_PRICE_WEIGHT = 10.0
_QUALITY = 0.97
_LEFT = {"costs.parquet", "held_out.parquet", "report.html", "router"}


_Out: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder for table, router and report.")
]


def run_demo(
    out: _Out = Path("mildroute-demo"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """See the whole way on real data: three classifiers of different price read handwritten digits.

    Example: mildroute demo
    """
    from mildroute._fit import fit
    from mildroute.datasets import digits_table
    from mildroute.encoders.text import NumberEncoder
    from mildroute.evaluation.router_evaluation import evaluate
    from mildroute.persistence.artifact import save_router
    from mildroute.routers.operating_point import Target

    _check_folder(out)
    with progress_bar("train three experts") as tell:
        tell(0, 1, "")
        table = digits_table(seed)
    table.save(out / "costs.parquet")
    found = _compare(table, seed)
    train, held_out = table.split(0.2, seed=seed)
    held_out.save(out / "held_out.parquet")
    with progress_bar("fit for any price") as tell:
        fitted = fit(
            train,
            encoder=NumberEncoder(),
            target=Target("quality", _QUALITY),
            seed=seed,
            progress=tell,
        )
    save_router(fitted.router, out / "router", card={"notes": "Made by mildroute demo."})
    measured = evaluate(fitted.router, held_out, seed=seed)
    write_report(
        measured,
        out / "report.html",
        {"router": "router", "table": "held_out.parquet", "made by": "mildroute demo"},
    )
    if as_json:
        print_json(
            {
                "comparison": found.as_dict(),
                "assessment": measured.as_dict(),
                "report": str(out / "report.html"),
            }
        )
        return
    _show(found, measured, fitted.note, out)


def _compare(table: CostTable, seed: int) -> Comparison:
    from mildroute.encoders.text import NumberEncoder
    from mildroute.evaluation.comparison import compare, default_routers

    wanted = ("MildRouter", "kNN", "TDEF")
    routers = {name: router for name, router in default_routers(seed).items() if name in wanted}
    with progress_bar("compare routers") as tell:
        return compare(
            table,
            routers,
            encoder=NumberEncoder(),
            price_weight=_PRICE_WEIGHT,
            seed=seed,
            progress=tell,
        )


def _show(found: Comparison, measured: RouterEvaluation, note: str, out: Path) -> None:
    typer.echo(
        "1,797 handwritten digits; a tree, a linear model and a support vector machine at 0.1, 1"
        " and 10 dollars per 1,000."
    )
    show_comparison(found)
    print_notes(
        [
            measured.savings.sentence if measured.savings else "",
            f"operating point: {note}",
            f"report: {out / 'report.html'}",
            (
                f"go on: mildroute inspect {out / 'costs.parquet'}; mildroute evaluate"
                f" {out / 'router'} {out / 'held_out.parquet'}"
            ),
        ],
        mark="",
    )


def _check_folder(out: Path) -> None:
    """A new folder, or one that an earlier demo has left."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        others = {path.name for path in out.iterdir()} - _LEFT
    except OSError as error:
        raise ArgumentError(
            f"--out must be a folder that can be written to, got {str(out)!r}: {error.strerror}."
        ) from error
    if others:
        raise ArgumentError(
            f"--out must be a new folder or an earlier demo's, got {str(out)!r} with"
            f" {sorted(others)[0]!r}; choose another."
        )
