"""``mildroute log``, ``costs`` and ``spend``: the decision log as Parquet, cost table and bill."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mildroute.cli._options import AsJson, PriceWeight
from mildroute.cli._output import names_in, print_json, print_notes, print_table
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.evaluation.logged_data import LoggedDecisions
    from mildroute.evaluation.off_policy import Estimate
    from mildroute.serving.observability.compaction import ShippingResult
    from mildroute.serving.observability.export import LoggedCostTable

__all__ = ["costs", "log", "spend"]


# ``mildroute log tidy``: finished files of the gateway's log as Parquet.


log = typer.Typer(
    name="log", help="The gateway's decision log.", no_args_is_help=True, rich_markup_mode=None
)


@log.command("tidy")
def tidy(
    folder: Annotated[
        Path, typer.Argument(metavar="LOG_FOLDER", help="Folder of the gateway's log.")
    ],
    as_json: AsJson = False,
) -> None:
    """Convert finished log files to Parquet; files that a gateway still writes do not change.

    Example: mildroute log tidy log
    """
    from mildroute._format import pluralize
    from mildroute.serving.observability.compaction import compact_log

    done = compact_log(folder)
    if as_json:
        print_json(asdict(done))
    else:
        are = "is" if done.files == 1 else "are"
        still = "is" if done.growing == 1 else "are"
        files = f"{pluralize(done.files, 'file')} with {pluralize(done.rows, 'line')}"
        typer.echo(f"{files} {are} Parquet now; {done.growing:,} {still} still written.")


@log.command("ship")
def ship(
    folder: Annotated[
        Path, typer.Argument(metavar="LOG_FOLDER", help="Folder of the gateway's log.")
    ],
    target: Annotated[
        str, typer.Argument(metavar="URL", help="Destination: s3://bucket/log, or a folder.")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Run until stopped, as a sidecar.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", min=0.01, help="Seconds between checks of the log, with --follow."
        ),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Copy new log entries to an object store as Parquet, partitioned by hour.

    Example: mildroute log ship log s3://my-bucket/gateway
    """
    from mildroute.exceptions import TableError
    from mildroute.serving.observability.compaction import ship_log

    while True:
        try:
            done = ship_log(folder, target)
        except TableError as error:
            if not follow:
                raise
            typer.echo(f"{error} Retrying in {interval:g} s.", err=True)
        else:
            _show_shipped(done, target, as_json=as_json)
        if not follow:
            return
        time.sleep(interval)


def _show_shipped(done: ShippingResult, target: str, *, as_json: bool) -> None:
    from mildroute._files import without_credentials
    from mildroute._format import pluralize

    if as_json:
        print_json(asdict(done))
    else:
        typer.echo(
            f"{pluralize(done.rows, 'line')} shipped to {without_credentials(target)} in"
            f" {pluralize(done.objects, 'object')}."
        )


# ``mildroute costs from-log``: a cost table from the gateway's decisions and their feedback, and
# what the experts cost.


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
            metavar="LOG_FOLDER", help="Folder of the gateway's log, or the URL it was shipped to."
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
    from mildroute.serving.observability.export import costs_from_log as join

    if out.suffix != ".parquet":
        raise ArgumentError(
            f"the table is written as Parquet, got {out.name!r}; choose a name that ends with"
            " .parquet."
        )
    found = join(folder, only_with_text=only_with_text)
    found.save(out)
    values, notes = _estimates(found, price_weight or 0.0)
    if as_json:
        print_json(_as_dict(found, out, values, notes))
    else:
        _show(found, out, values, notes)


def _estimates(found: LoggedCostTable, price_weight: float) -> tuple[dict[str, Any], list[str]]:
    """Estimates of the experts, of the log itself and of a shadow router.

    None where no other expert had a chance.
    """
    from mildroute.evaluation.logged_data import read_logged_decisions
    from mildroute.evaluation.off_policy import estimate_expert_costs, estimate_policy_cost
    from mildroute.exceptions import TableError

    try:
        logged = read_logged_decisions(found.arrow, price_weight=price_weight)
    except TableError as error:
        return {}, [str(error)]
    values = {
        name: (estimate, _plain_mean(logged, place))
        for place, (name, estimate) in enumerate(estimate_expert_costs(logged).items())
    }
    notes = [
        *logged.notes,
        *(
            f"{name}: {warning}"
            for name, (estimate, _) in values.items()
            for warning in estimate.warnings
        ),
    ]
    shadowed, choice = _shadow(found, logged)
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


def _plain_mean(logged: LoggedDecisions, place: int) -> float:
    import numpy as np

    own = logged.costs[logged.has_answer & (logged.chosen == place)]
    return float(np.mean(own)) if len(own) else float("nan")


def _shadow(
    found: LoggedCostTable, logged: LoggedDecisions
) -> tuple[LoggedDecisions | None, list[str]]:
    """Decisions on which a shadow router chose one of the experts, and whom."""
    chosen = dict(
        zip(
            found.arrow.column("query_id").to_pylist(),
            found.arrow.column("shadow").to_pylist(),
            strict=True,
        )
    )
    ids = [] if logged.query_ids is None else logged.query_ids.tolist()
    rows = [row for row, name in enumerate(ids) if chosen[name] in logged.experts]
    return (logged.take(rows), [chosen[ids[row]] for row in rows]) if rows else (None, [])


def _as_dict(
    found: LoggedCostTable, out: Path, values: dict[str, Any], notes: list[str]
) -> dict[str, Any]:
    from mildroute._format import to_jsonable

    counts = {
        name: getattr(found, name)
        for name in ("rows", "decisions", "without_score", "without_answer", "unknown")
    }
    experts = {
        name: {**to_jsonable(estimate), "plain_mean": plain}
        for name, (estimate, plain) in values.items()
    }
    samples = {**asdict(found.samples), "is_enough": found.samples.is_enough}
    return {
        "table": str(out),
        **counts,
        "samples": samples,
        "experts": experts,
        "notes": [*found.notes, *notes],
    }


def _show(
    found: LoggedCostTable, out: Path, values: dict[str, tuple[Estimate, float]], notes: list[str]
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
        title = f"{found.rows:,} of {found.decisions:,} decisions have a score"
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
    others = [
        f"{found.without_score:,} decisions have no score, {found.without_answer:,} no answer;"
        f" {found.unknown:,} scores no decision"
    ]
    if found.samples.rows:
        others.append(str(found.samples))
    print_notes([*found.notes, *notes], mark="note:")
    print_notes([*others, f"table: {out}"], mark="")


# ``mildroute spend``: the ledger of what experts have cost, and reports.


spend = typer.Typer(
    name="spend",
    help="Record and report dollars by key, team, expert and day.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@spend.command("ingest")
def ingest_spend(
    folder: Annotated[
        Path, typer.Argument(metavar="LOG_FOLDER", help="Folder of the gateway's log.")
    ],
    ledger: Annotated[
        str, typer.Option(help="URL of the ledger database: sqlite:////..., postgresql://...")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", help="Run until stopped, alongside a gateway.")
    ] = False,
    interval: Annotated[
        float, typer.Option(help="Seconds between checks of the log, with --follow.", min=0.05)
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Add the calls of a decision log to a ledger; repeated runs add each call only once.

    Example: mildroute spend ingest log --ledger sqlite:///ledger.db
    """
    from mildroute.serving.auth.database import DatabaseError
    from mildroute.serving.observability.ledger import Ledger

    while True:
        try:
            with contextlib.closing(Ledger(ledger, create=True)) as database:
                added = database.ingest(folder)
                while follow:
                    time.sleep(interval)
                    database.ingest(folder)
            break
        except DatabaseError as error:
            if not follow:
                raise
            typer.echo(f"the log waits: {error}", err=True)
            time.sleep(max(interval, 1.0))
    if as_json:
        print_json({"calls": added, "ledger": ledger})
    else:
        typer.echo(f"{added:,} calls are new in {ledger}.")


@spend.command("report")
def report_spend(
    ledger: Annotated[str | None, typer.Option(help="URL of the ledger database.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Folder of a gateway's log, instead of a ledger.")
    ] = None,
    by: Annotated[
        str, typer.Option(help="Group by key, team, expert, day, or several with commas between.")
    ] = "key",
    since: Annotated[str | None, typer.Option(help="First day in UTC, such as 2026-11-01.")] = None,
    until: Annotated[str | None, typer.Option(help="End day in UTC, exclusive.")] = None,
    as_json: AsJson = False,
) -> None:
    """Report calls, tokens and dollars from a ledger, or directly from a log.

    Example: mildroute spend report --ledger sqlite:///ledger.db --by team,day --since 2026-11-01
    """
    from mildroute.serving.auth.keys import parse_date
    from mildroute.serving.observability.ledger import Ledger, read_entries, summarize_spend

    start = 0.0 if since is None else parse_date(since)
    end = float("inf") if until is None else parse_date(until)
    names = names_in(by) or []
    if (ledger is None) == (log is None):
        raise ArgumentError("a report reads one source; give --ledger or --log.")
    if log is not None:
        rows = summarize_spend(read_entries(log, start, end), names)
    else:
        with contextlib.closing(Ledger(str(ledger))) as database:
            rows = summarize_spend(database.entries(start, end), names)
    if as_json:
        print_json(rows)
        return
    sums = ("calls", "tokens_in", "tokens_out")
    cells = [
        [
            *(row[name] for name in names),
            *(f"{row[name]:,}" for name in sums),
            f"{row['dollars']:,.6f}",
        ]
        for row in rows
    ]
    print_table("Spend", [*names, "calls", "tokens in", "tokens out", "dollars"], cells)
