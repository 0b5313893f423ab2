"""``mildroute costs``: build a cost table from the gateway's decision log."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mildroute.cli._options import AsJson, PriceWeight
from mildroute.cli._output import print_json, print_notes, print_table
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.decision.export import LoggedCostTable
    from mildroute.evaluation.logged_data import LoggedDecisions
    from mildroute.evaluation.off_policy import Estimate

__all__ = ["costs"]


costs = typer.Typer(
    name="costs",
    help="Build cost tables from other sources.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@costs.command("from-log")
def costs_from_log(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="LOG_FOLDER",
            help="Folder or URL of the gateway's log, or a quoted pattern such as 'logs/*'.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Parquet file for the table.")] = Path(
        "logged.parquet"
    ),
    price_weight: PriceWeight = 0.0,
    only_with_text: Annotated[
        bool, typer.Option("--only-with-text", help="Skip decisions whose text was not logged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build a cost table from a gateway's decisions, feedback and samples.

    Also estimates each expert's mean cost with a 95% interval.

    Example: mildroute costs from-log log --out logged.parquet
    """
    from mildroute.decision.export import costs_from_log as join

    if out.suffix != ".parquet":
        raise ArgumentError(
            f"--out must be a Parquet file, got {out.name!r}; choose a name that ends"
            " with .parquet."
        )
    logged_table = join(folder, only_with_text=only_with_text)
    logged_table.save(out)
    values, notes = _estimates(logged_table, price_weight or 0.0)
    if as_json:
        print_json(_as_dict(logged_table, out, values, notes))
    else:
        _show(logged_table, out, values, notes)


def _estimates(
    logged_table: LoggedCostTable, price_weight: float
) -> tuple[dict[str, Any], list[str]]:
    """Return estimates for the experts, and notes on the log and on a shadow router.

    Without exploration, only one expert could be chosen, so nothing can be estimated.
    """
    from mildroute.evaluation.logged_data import read_logged_decisions
    from mildroute.evaluation.off_policy import estimate_expert_costs, estimate_policy_cost
    from mildroute.exceptions import TableError

    try:
        logged = read_logged_decisions(logged_table.arrow, price_weight=price_weight)
    except TableError as error:
        return {}, [str(error)]
    values = {
        name: (estimate, _plain_mean(logged, index))
        for index, (name, estimate) in enumerate(estimate_expert_costs(logged).items())
    }
    notes = [
        *logged.notes,
        *(
            f"{name}: {warning}"
            for name, (estimate, _) in values.items()
            for warning in estimate.warnings
        ),
    ]
    shadowed, choice = _shadow(logged_table, logged)
    if shadowed is not None:
        notes.append(
            f"the shadow router would have cost {estimate_policy_cost(shadowed, choice)} on"
            f" {shadowed.rows:,} requests"
        )
        notes.append(
            f"the gateway has cost {estimate_policy_cost(shadowed, shadowed.chances)} on the same"
            " requests"
        )
    return values, notes


def _plain_mean(logged: LoggedDecisions, index: int) -> float:
    import numpy as np

    expert_costs = logged.costs[logged.has_answer & (logged.chosen == index)]
    return float(np.mean(expert_costs)) if len(expert_costs) else float("nan")


def _shadow(
    logged_table: LoggedCostTable, logged: LoggedDecisions
) -> tuple[LoggedDecisions | None, list[str]]:
    """Return the decisions for which a shadow router chose a known expert, and its choices."""
    shadow_choices = dict(
        zip(
            logged_table.arrow.column("query_id").to_pylist(),
            logged_table.arrow.column("shadow").to_pylist(),
            strict=True,
        )
    )
    ids = [] if logged.query_ids is None else logged.query_ids.tolist()
    rows = [row for row, name in enumerate(ids) if shadow_choices[name] in logged.experts]
    return (logged.take(rows), [shadow_choices[ids[row]] for row in rows]) if rows else (None, [])


def _as_dict(
    logged_table: LoggedCostTable, out: Path, values: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    from mildroute._format import to_jsonable

    counts = {
        name: getattr(logged_table, name)
        for name in ("rows", "decisions", "without_score", "without_answer", "unknown")
    }
    experts = {
        name: {**to_jsonable(estimate), "plain_mean": plain}
        for name, (estimate, plain) in values.items()
    }
    samples = {**asdict(logged_table.samples), "is_enough": logged_table.samples.is_enough}
    return {
        "table": str(out),
        **counts,
        "samples": samples,
        "experts": experts,
        "notes": [*logged_table.notes, *notes],
    }


def _show(
    logged_table: LoggedCostTable,
    out: Path,
    values: dict[str, tuple[Estimate, float]],
    notes: list[str],
) -> None:
    rows = [
        [
            name,
            f"{estimate.rows:,}",
            *(
                (
                    f"{plain:.4f}",
                    f"{estimate.value:.4f}",
                    f"{estimate.low:.4f} to {estimate.high:.4f}",
                )
                if math.isfinite(estimate.value)
                else ("unknown",) * 3
            ),
            f"{estimate.effective_rows:,.0f}",
        ]
        for name, (estimate, plain) in values.items()
    ]
    if rows:
        title = f"{logged_table.rows:,} of {logged_table.decisions:,} decisions have a score"
        print_table(
            title,
            [
                "expert",
                "answers",
                "plain mean",
                "cost on all requests",
                "95% interval",
                "effective answers",
            ],
            rows,
        )
    summary = [
        f"{logged_table.without_score:,} decisions have no score,"
        f" {logged_table.without_answer:,} no answer;"
        f" {logged_table.unknown:,} scores no decision"
    ]
    if logged_table.samples.rows:
        summary.append(str(logged_table.samples))
    print_notes([*logged_table.notes, *notes], mark="note:")
    print_notes([*summary, f"table: {out}"], mark="")
