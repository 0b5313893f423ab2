"""``mildroute collect``: build a cost table from queries and experts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import duration, print_json, print_notes, print_table

if TYPE_CHECKING:
    from mildroute.collection.estimate import CollectionEstimate
    from mildroute.collection.job import CollectionJob
    from mildroute.collection.progress import ExpertProgress
    from mildroute.collection.results import CollectionPlan, CollectionResult
    from mildroute.experts.config import ExpertFile

__all__ = ["collect_costs"]


# Exit code if an expert has no score at all.
NO_SCORES = 4
_REDRAW_INTERVAL_S = 0.25
_PRINT_INTERVAL_S = 10.0
_MAX_REASONS = 2
_COLUMNS = ["expert", "done", "errors", "score", "cells/s", "$ paid", "left", "time left"]


_Queries: TypeAlias = Annotated[
    str,
    typer.Argument(
        help=(
            "Queries as Parquet, CSV or JSON lines, with an 'input' (or 'text') column and, for"
            " most judges, a 'reference' column."
        )
    ),
]
_Experts: TypeAlias = Annotated[
    Path, typer.Option(help="Experts file with prices.", metavar="experts.yaml")
]
_Judge: TypeAlias = Annotated[
    str,
    typer.Option(
        help=(
            "Judge: choice, exact, numeric, regex, json, label, tests, graded, pairwise, or a"
            " plug-in. With several, such as numeric,exact, the 'judge' column names the one for"
            " each query."
        )
    ),
]
_Out: TypeAlias = Annotated[Path, typer.Option(help="Folder for the cost table and all answers.")]
_JudgeSetting: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="Judge setting as name=value, or judge.name=value with several judges; repeatable."
    ),
]
_MaxDollars: TypeAlias = Annotated[
    float | None,
    typer.Option(help="Maximum dollars to spend in this folder over all runs; no cap by default."),
]
_ExpertsPerQuery: TypeAlias = Annotated[
    str,
    typer.Option(
        help="Number of experts to call per query; with fewer than all, fit needs --missing keep.",
        metavar="all|N",
    ),
]
_Answers: TypeAlias = Annotated[
    bool,
    typer.Option("--answers", help="Include the answers in the table, for fit --cascade."),
]
_Yes: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Do not prompt before spending; required with --json if calls cost money.",
    ),
]


def collect_costs(
    queries: _Queries,
    experts: _Experts,
    judge: _Judge,
    out: _Out = Path("costs"),
    judge_setting: _JudgeSetting = None,
    max_dollars: _MaxDollars = None,
    experts_per_query: _ExpertsPerQuery = "all",
    answers: _Answers = False,
    yes: _Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send all QUERIES to the experts, judge their answers and write a cost table.

    Estimates calls, dollars and time first. Answers from earlier runs are reused, and a killed run
    resumes.

    Example: mildroute collect queries.parquet --experts experts.yaml --judge choice --out costs --max-dollars 20
    """  # noqa: E501
    from mildroute.collection.collector import collect
    from mildroute.experts.config import read_experts

    file = read_experts(experts)
    settings = dict(map(_parse_setting, judge_setting or []))
    job = replace(
        _job(queries, file, judge, settings, out, max_dollars, experts_per_query), answers=answers
    )
    with _progress_display(quiet=as_json) as report:
        result = collect(
            job,
            agree=lambda plan: _is_confirmed(plan, job, yes=yes, quiet=as_json),
            progress=report,
        )
    if result is None:
        print_notes(["nothing was called"], mark="")
    elif as_json:
        print_json(_as_dict(result))
    else:
        _print_result(result, max_dollars)
    if result is not None and any(
        each.done and not each.known and each.done == each.errors for each in result.tallies
    ):
        raise typer.Exit(NO_SCORES)


def _job(
    queries: str,
    file: ExpertFile,
    judge: str,
    settings: dict[str, Any],
    out: Path,
    cap: float | None,
    per_query: str,
) -> CollectionJob:
    from mildroute.collection.job import CollectionJob
    from mildroute.collection.queries import open_queries
    from mildroute.exceptions import ArgumentError
    from mildroute.experts.config import build_expert
    from mildroute.judges.registry import judge_from_config

    if per_query != "all" and not per_query.isdecimal():
        raise ArgumentError(f"experts per query must be all or a whole number, got {per_query!r}.")
    return CollectionJob(
        open_queries(queries),
        [build_expert(spec) for spec in file.experts],
        judge_from_config(judge, settings, [*file.judges, *file.experts]),
        out,
        file.prices,
        cap,
        None if per_query == "all" else int(per_query),
    )


def _parse_setting(text: str) -> tuple[str, Any]:
    import json

    from mildroute.exceptions import ArgumentError

    name, equals, value = text.partition("=")
    if not equals:
        raise ArgumentError(f"a judge setting must be name=value, got {text!r}.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _is_confirmed(plan: CollectionPlan, job: CollectionJob, *, yes: bool, quiet: bool) -> bool:
    from mildroute._format import pluralize

    estimates = plan.estimates
    calls = sum(each.calls for each in estimates)
    if not quiet:
        print_table(
            f"{pluralize(len(job.queries), 'query')}, {pluralize(calls, 'call')} to make",
            ["expert", "cells", "known", "calls", "tokens in", "$ expected", "$ at most", "time"],
            [_estimate_row(each) for each in estimates],
        )
        print_notes(_estimate_notes(plan, job), mark="")
    is_judging_paid = _is_judging_paid(estimates, job)
    if quiet and not yes:
        _check_free(sum(each.at_most for each in estimates), is_judging_paid)
    return (
        yes or quiet or not (calls or is_judging_paid) or typer.confirm("call them?", default=False)
    )


def _check_free(at_most: float, is_judging_paid: bool) -> None:
    """Refuse paid calls without --yes, because --json cannot prompt."""
    from mildroute.exceptions import ArgumentError

    if at_most or is_judging_paid:
        bound = (
            "" if is_judging_paid or at_most == float("inf") else f" up to {at_most:.4g} dollars"
        )
        raise ArgumentError(
            f"--json does not prompt before spending{bound}; add --yes to allow it, preferably"
            " with --max-dollars."
        )


def _is_judging_paid(estimates: list[CollectionEstimate], job: CollectionJob) -> bool:
    from mildroute.experts.base import Query

    return any(each.missing for each in estimates) and any(
        each.max_cost(Query("", "")) for each in job.judge.experts()
    )


def _estimate_row(each: CollectionEstimate) -> list[str]:
    at_most = "no bound" if each.at_most == float("inf") else f"{each.at_most:.4g}"
    dollars = "unknown" if each.dollars == float("inf") else f"{each.dollars:.4g}"
    counts = [
        f"{each.cells:,}",
        f"{each.cells - each.missing:,}",
        f"{each.calls:,}",
        f"{each.tokens_in:,.0f}",
    ]
    return [each.expert, *counts, dollars, at_most, duration(each.seconds)]


def _estimate_notes(plan: CollectionPlan, job: CollectionJob) -> list[str]:
    from mildroute._format import format_dollars

    estimates = plan.estimates
    longest = max((each.seconds for each in estimates), default=0.0)
    notes = [
        f"total: {format_dollars(sum(each.dollars for each in estimates))}, about"
        f" {duration(longest)}; experts are called in parallel"
    ]
    unmeasured = [each.expert for each in estimates if each.calls and not each.is_measured]
    if unmeasured:
        notes.append(
            "estimates assume one second per call and the longest answers until"
            f" {', '.join(unmeasured)} have answered some queries"
        )
    judging = (
        [expert.name for expert in job.judge.experts()]
        if any(each.missing for each in estimates)
        else []
    )
    notes += [
        f"each verdict calls {name}, which costs extra and counts toward the cap"
        for name in judging
    ]
    if plan.coverage.scorable < plan.coverage.queries:
        notes.append(str(plan.coverage))
    cap = "no cap" if job.max_dollars is None else f"a cap of {format_dollars(job.max_dollars)}"
    return [*notes, f"in {job.folder} so far: {plan.spending}; {cap}"]


@contextmanager
def _progress_display(*, quiet: bool) -> Iterator[Callable[[Sequence[ExpertProgress]], None]]:
    """Yield a function that shows progress: a live table on a terminal, lines elsewhere."""
    from rich.console import Console
    from rich.live import Live

    if quiet:
        yield lambda _tallies: None
        return
    console = Console(stderr=True)
    display = Live(console=console, auto_refresh=False, transient=True)
    last_update = 0.0
    is_started = False

    def report(tallies: Sequence[ExpertProgress]) -> None:
        nonlocal last_update, is_started
        now = time.monotonic()
        if now - last_update < (_REDRAW_INTERVAL_S if console.is_terminal else _PRINT_INTERVAL_S):
            return
        last_update = now
        if console.is_terminal:
            if not is_started:
                display.start()
                is_started = True
            display.update(_table(tallies), refresh=True)
        else:
            console.print(
                "; ".join(
                    f"{each.expert} {each.known + each.done:,}/{each.total:,}" for each in tallies
                ),
                soft_wrap=True,
            )

    try:
        yield report
    finally:
        if is_started:
            display.stop()


def _table(tallies: Sequence[ExpertProgress]) -> Any:
    from rich.table import Table

    table = Table(*_COLUMNS, box=None)
    for each in tallies:
        table.add_row(*_tally_row(each))
    return table


def _tally_row(each: ExpertProgress) -> list[str]:
    scored = each.done - each.errors
    time_remaining = "" if each.seconds_remaining is None else duration(each.seconds_remaining)
    return [
        each.expert,
        f"{each.known + each.done:,}/{each.total:,}",
        f"{each.errors:,}",
        f"{each.score / scored:.3f}" if scored else "",
        f"{each.rate:,.1f}",
        f"{each.dollars:.4g}",
        f"{each.remaining:,}",
        time_remaining if each.state == "calling" else each.state,
    ]


def _print_result(result: CollectionResult, max_dollars: float | None) -> None:
    from mildroute._format import format_dollars, pluralize

    print_table("collected", _COLUMNS, [_tally_row(each) for each in result.tallies])
    notes = [f"table: {result.table}", f"in this folder: {result.spending}"]
    if max_dollars is not None and result.spending.paid > max_dollars:
        notes.append(
            f"the cap of {format_dollars(max_dollars)} was exceeded: an expert charged for more"
            " tokens than max_tokens in its request allows; check its bill before you continue"
        )
    if result.is_capped:
        notes.append(
            f"stopped by the cap: {pluralize(result.complete, 'complete query')} in the table,"
            f" {result.left_out:,} left out; raise --max-dollars to continue"
        )
    if empty := result.empty - result.left_out_cells:
        are = "is" if empty == 1 else "are"
        notes.append(
            f"{pluralize(empty, 'cell')} {are} empty: run the same command again to fill"
            " them, or read the table with --missing drop"
        )
    if result.unwanted:
        were = "was" if result.unwanted == 1 else "were"
        notes.append(
            f"{pluralize(result.unwanted, 'cell')} {were} left out because of"
            " --experts-per-query: the table has each expert's mean score and price, so that"
            " you can choose experts; to fit a router, collect the rest with"
            " --experts-per-query all"
        )
    for expert, reasons in result.reasons.items():
        counts = [
            f"{pluralize(count, 'answer')}: {reason}" for reason, count in reasons[:_MAX_REASONS]
        ]
        more = sum(count for _, count in reasons[_MAX_REASONS:])
        notes.append(
            f"{expert}: {'; '.join(counts)}{f'; {more:,} for other reasons' if more else ''}"
        )
    print_notes(notes, mark="")


def _as_dict(result: CollectionResult) -> dict[str, Any]:
    names = ("expert", "total", "known", "done", "errors", "dollars", "reserved", "calls", "state")
    experts = [{name: getattr(each, name) for name in names} for each in result.tallies]
    return {
        "table": str(result.table),
        "spent": result.spent,
        "paid": result.spending.paid,
        "reserved": result.spending.reserved,
        "lost_calls": result.spending.lost_calls,
        "complete": result.complete,
        "left_out": result.left_out,
        "scorable": None if result.coverage is None else result.coverage.scorable,
        "empty": result.empty,
        "unwanted": result.unwanted,
        "is_capped": result.is_capped,
        "reasons": {expert: dict(reasons) for expert, reasons in result.reasons.items()},
        "experts": experts,
    }
