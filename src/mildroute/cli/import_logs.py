"""``mildroute import``: turn other tools' evaluation logs into a cost table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli._options import AsJson, Prices
from mildroute.cli._output import print_json, print_notes, print_table
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["import_logs"]


@dataclass(frozen=True)
class _ImportSummary:
    table: str
    rows: int
    prompts: int
    mean_scores: dict[str, float]
    mean_dollars: dict[str, float] | None
    notes: tuple[str, ...]


def import_logs(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Log files or folders.")],
    out: Annotated[Path, typer.Option("--out", help="Parquet file for the table.")] = Path(
        "costs.parquet"
    ),
    log_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="promptfoo, lm-eval, inspect_ai, helm or openai-evals; recognized by default.",
        ),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="Score to use, if the logs hold several.")
    ] = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", help="New name of an expert; may be repeated.", metavar="OLD=NEW"),
    ] = None,
    prices: Prices = None,
    keep_partial: Annotated[
        bool,
        typer.Option("--keep-partial", help="Keep prompts that some experts did not answer."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Turn promptfoo, lm-eval, inspect_ai, HELM or OpenAI evals logs into a cost table.

    Example: mildroute import results.json --out costs.parquet
    """
    from mildroute.costs.importers.read import read_eval_logs

    if out.suffix != ".parquet":
        raise ArgumentError(f"--out must end with .parquet, got {out.name!r}.")
    table = read_eval_logs(
        logs,
        format=log_format,
        metric=metric,
        experts=_new_names(rename or []),
        prices=prices,
        keep_partial=keep_partial,
    )
    table.save(out)
    summary = _ImportSummary(
        str(out),
        len(table),
        len(table.clusters),
        dict(zip(table.experts, map(float, _column_means(table.scores)), strict=True)),
        None
        if table.dollars is None
        else dict(zip(table.experts, map(float, _column_means(table.dollars)), strict=True)),
        table.notes,
    )
    if as_json:
        print_json(asdict(summary))
    else:
        _print_summary(summary)


def _column_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.asarray(np.nanmean(values, axis=0))


def _new_names(pairs: list[str]) -> dict[str, str]:
    names = {}
    for pair in pairs:
        old, equals, new = pair.rpartition("=")
        if not (old and equals and new):
            raise ArgumentError(f"--rename takes OLD=NEW, got {pair!r}.")
        names[old] = new
    return names


def _print_summary(summary: _ImportSummary) -> None:
    rows = []
    for name, score in summary.mean_scores.items():
        dollars = (
            "" if summary.mean_dollars is None else f"${1000 * summary.mean_dollars[name]:.3g}"
        )
        rows.append([name, f"{score:.3f}", dollars])
    print_table(f"{summary.rows:,} rows", ["expert", "mean score", "dollars per 1,000"], rows)
    print_notes(summary.notes, mark="note:")
    next_step = f"mildroute fit {summary.table} --quality 0.95 --out router"
    if summary.mean_dollars is None:
        next_step = "import again with --prices prices.json; a quality or a budget needs dollars"
    print_notes([f"table: {summary.table}", f"next: {next_step}"], mark="")
