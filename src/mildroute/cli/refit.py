"""``mildroute add-expert``, ``remove-expert`` and ``reprice``: fit a stored router again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson, OutputTokens, Seed, TableOptions
from mildroute.cli._output import print_json, print_sentence, progress_bar
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.fitting.text_router import TextRouter

__all__ = ["add_expert", "remove_expert", "reprice"]

_StoredRouter: TypeAlias = Annotated[
    Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")
]
_TableOfRouter: TypeAlias = Annotated[
    str,
    typer.Option("--table", help="Cost table that the router was fitted on.", metavar="TABLE"),
]
_NewPrices: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--prices", help="JSON or CSV with dollars per million tokens (expert, input, output)."
    ),
]
_NewScores: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--scores",
        help=(
            "Scored queries of the new expert: query_id, score:<expert>, cost:<expert>, and input"
            " if an id is not in the table."
        ),
        metavar="SCORED",
    ),
]
_SuggestQueries: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--suggest",
        help="Write this many queries of the table to --out, for scoring a new expert.",
        min=1,
    ),
]
_NewOut: TypeAlias = Annotated[
    Path,
    typer.Option("--out", help="Folder for the new router; replaces any router already there."),
]


def add_expert(
    folder: _StoredRouter,
    table: _TableOfRouter,
    scores: _NewScores = None,
    suggest: _SuggestQueries = None,
    out: _NewOut = Path("router-new"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Add an expert to a ROUTER from 50 to 1,000 scored queries.

    Queries of the old table are the most informative. Encoder, method and target do not change.

    Example: mildroute add-expert router --table costs.parquet --scores new.parquet --out router-new
    """
    from mildroute.costs.table import CostTable
    from mildroute.fitting.new_expert import with_new_expert
    from mildroute.persistence.artifact import check_replaceable

    if (scores is None) == (suggest is None):
        raise ArgumentError("give one of --scores and --suggest, got both or neither.")
    router, old = _stored_router(folder, table)
    if suggest is not None:
        return _suggest(router, old, suggest, out, seed, as_json=as_json)
    check_replaceable(out)
    new = CostTable.read_new_expert(scores, old.experts)
    train, note = with_new_expert(old, new, router.encoder_, seed=seed)
    return _fit_again(router, train, out, seed, (note,), as_json=as_json)


def remove_expert(
    folder: _StoredRouter,
    name: Annotated[str, typer.Argument(metavar="EXPERT", help="Name of the expert.")],
    table: _TableOfRouter,
    out: _NewOut = Path("router-new"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Remove an EXPERT from a ROUTER and refit it on the others.

    Example: mildroute remove-expert router gpt-4 --table costs.parquet --out router-new
    """
    from mildroute.persistence.artifact import check_replaceable

    router, old = _stored_router(folder, table)
    if name not in old.experts:
        raise ArgumentError(
            f"the router has no expert {name!r}; it has {', '.join(map(repr, old.experts))}."
        )
    check_replaceable(out)
    others = old.select([each for each in old.experts if each != name])
    _fit_again(router, others, out, seed, (), as_json=as_json)


def reprice(
    folder: _StoredRouter,
    table: _TableOfRouter,
    prices: _NewPrices,
    output_tokens: OutputTokens = None,
    out: _NewOut = Path("router-new"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Refit a ROUTER at new prices, with the queries and scores of its table.

    Example: mildroute reprice router --table costs.parquet --prices prices.json --out router-new
    """
    from mildroute.persistence.artifact import check_replaceable

    reading = TableOptions(prices=prices, output_tokens=output_tokens, missing="keep")
    router, new = _stored_router(folder, table, reading)
    check_replaceable(out)
    _fit_again(router, new, out, seed, (), as_json=as_json)


def _stored_router(
    folder: Path, source: str, reading: TableOptions | None = None
) -> tuple[TextRouter, CostTable]:
    """Return a stored router and its experts' cost table."""
    from mildroute.cli._tables import load_table
    from mildroute.fitting.text_router import TextRouter
    from mildroute.persistence.artifact import load_router

    router = load_router(folder)
    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"the router must have been fitted on texts by 'mildroute fit', got"
            f" {type(router).__name__}; fit it again."
        )
    experts = [str(name) for name in router.experts_[: router.n_experts]]
    options = TableOptions(missing="keep") if reading is None else reading
    return router, load_table(source, options, experts=experts, partial=True)


def _suggest(
    router: TextRouter, table: CostTable, count: int, out: Path, seed: int, *, as_json: bool
) -> None:
    import pyarrow.parquet as pq

    from mildroute.fitting.new_expert import known_experts

    if out.suffix != ".parquet" or out.exists():
        raise ArgumentError(
            f"--out must be a new .parquet file for the queries, got {str(out)!r}; choose another."
        )
    if table.is_partial:
        raise ArgumentError(
            "queries are chosen from a table in which every expert has a score in every row, got a"
            " partial one; drop the incomplete rows."
        )
    if count > len(table):
        raise ArgumentError(
            f"--suggest must be at most {len(table)}, the table's rows, got {count}."
        )
    reference = known_experts(table, router.encoder_, seed=seed)
    rows = reference.order_queries(count, random_state=seed)
    pq.write_table(table.arrow.select(["query_id", "input"]).take(rows), out)
    if as_json:
        return print_json({"queries": str(out), "rows": count})
    return print_sentence(
        f"{count} queries in {out}: score the new expert on them, then pass --scores"
    )


def _fit_again(
    router: TextRouter,
    train: CostTable,
    out: Path,
    seed: int,
    notes: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    from mildroute.cli._fit_report import report_fit, save_fitted
    from mildroute.fitting.refit import refit

    with progress_bar("fit") as progress:
        fitted = refit(router, train, seed=seed, progress=progress)
    fitted = replace(fitted, warnings=(*notes, *fitted.warnings))
    report_fit(fitted, save_fitted(fitted, out, train), len(train), as_json=as_json)
