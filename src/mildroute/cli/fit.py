"""``mildroute fit``: from a table to a router, and again when experts come, go or change prices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._options import (
    AsJson,
    Budget,
    By,
    Encoder,
    Experts,
    InputColumn,
    Missing,
    OutputTokens,
    Prices,
    PriceUnit,
    PriceWeight,
    Quality,
    ScoreColumns,
    ScoreScale,
    Seed,
    Source,
    TestShare,
    columns_of,
    target_of,
)
from mildroute.cli._output import (
    print_json,
    print_lines,
    print_notes,
    print_table,
    progress_bar,
)
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.fitting.result import FittedRouter
    from mildroute.fitting.text_router import TextRouter
    from mildroute.routers.frontier.operating_point import OperatingPoint

__all__ = ["add_expert", "fit_router", "remove_expert", "reprice"]


_SUFFIXES = (".parquet", ".csv", ".jsonl")
_DEFAULT = "auto"


_Out: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder for the router; replaces a router there.")
]
_HoldOut: TypeAlias = Annotated[
    str | None,
    typer.Option("--hold-out", help="Hold out rows for evaluate and write them to this file."),
]
_Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Overwrite the --hold-out file if it exists.")
]
_Router: TypeAlias = Annotated[
    str,
    typer.Option(
        "--router",
        help=(
            "Router to fit, such as knn, a plug-in or a loss; auto is cost regression if the table"
            " has dollars."
        ),
    ),
]
_Thorough: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--thorough",
        help=(
            "Also fit MildRouter on all rows, even if it loses on a sample; several times slower."
        ),
    ),
]
_Cascade: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cascade",
        help=(
            "Look at answers before deciding if that pays off; the table must contain them"
            " (collect --answers)."
        ),
    ),
]
_AnswerCharacters: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--answer-characters",
        help=(
            "Characters of each answer that a cascade sees, from the start, as a gateway does with"
            " streams (routing.stream_looks: first); all by default."
        ),
        min=1,
    ),
]
_Logged: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--log",
        help="Also learn from a gateway's log: the table that 'mildroute costs from-log' wrote.",
        metavar="LOGGED",
    ),
]
_Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option("--jobs", help="Parallel processes: 1 by default, -1 for one per core.", min=-1),
]

_Baseline: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        help="Expert whose bill you pay today; savings are measured against it. By default the"
        " most expensive.",
        metavar="EXPERT",
    ),
]
_Order: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--order",
        help="time: also measure on the latest fifth of the rows what the promise loses there.",
    ),
]

_Stored: TypeAlias = Annotated[
    Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")
]
_Table: TypeAlias = Annotated[
    str,
    typer.Option("--table", help="Cost table that the router was fitted on.", metavar="TABLE"),
]
_NewPrices: TypeAlias = Annotated[
    Path,
    typer.Option(
        "--prices", help="JSON or CSV with dollars per million tokens (expert, input, output)."
    ),
]
_Scores: TypeAlias = Annotated[
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
_Suggest: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--suggest",
        help="Write this many queries of the table to --out, for scoring a new expert.",
        min=1,
    ),
]
_NewOut: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder for the new router; replaces a router there.")
]


def fit_router(
    source: Source,
    out: _Out = Path("router"),
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    hold_out: _HoldOut = None,
    test: TestShare = 0.2,
    by: By = "auto",
    force: _Force = False,
    experts: Experts = None,
    prices: Prices = None,
    price_unit: PriceUnit = None,
    output_tokens: OutputTokens = None,
    encoder: Encoder = "auto",
    router: _Router = _DEFAULT,
    thorough: _Thorough = False,
    cascade: _Cascade = False,
    answer_characters: _AnswerCharacters = None,
    logged: _Logged = None,
    jobs: _Jobs = None,
    baseline: _Baseline = None,
    order: _Order = None,
    seed: Seed = 0,
    missing: Missing = "raise",
    input_column: InputColumn = None,
    scores: ScoreColumns = None,
    score_scale: ScoreScale = None,
    as_json: AsJson = False,
) -> None:
    """Fit a router on a TABLE and store it in a folder.

    Example: mildroute fit costs.parquet --budget 1.5 --out router --hold-out held_out.parquet
    """
    from mildroute.cli._output import judge_of, load_table
    from mildroute.fitting.fit import fit
    from mildroute.persistence.registry import get_encoder

    target = target_of(budget, quality, price_weight)
    chosen = _chosen_router(router, seed, thorough, jobs)
    _check_outputs(hold_out, source, force, out)
    reading: dict[str, Any] = {"experts": experts, "prices": prices, "missing": missing}
    reading |= {"output_tokens": output_tokens, "answers": cascade, "partial": hold_out is None}
    reading |= {"price_unit": price_unit, "columns": columns_of(input_column, scores, score_scale)}
    parted = None if hold_out is None else (test, by)
    train, held = _train_and_held_out(load_table(source, **reading), parted, logged, seed)
    given: dict[str, Any] = {"cascade": cascade, "answer_characters": answer_characters}
    given |= {"encoder": get_encoder(encoder), "router": chosen, "target": target, "seed": seed}
    given |= {"thorough": thorough or "auto", "n_jobs": jobs, "judge": judge_of(source)}
    given |= {"baseline": baseline, "order": order}
    if by == "group":
        train = train.with_whole_groups()
    with progress_bar("fit") as tell:
        fitted = fit(train, progress=tell, **given)
    report = {**_save(fitted, out, train), "headline": fitted.headline}
    if held is not None:  # saved last, so that these rows belong to the router beside them
        held.save(str(hold_out))
    is_default = router == _DEFAULT
    return print_json(report) if as_json else _show(fitted, report, hold_out, is_default=is_default)


def _train_and_held_out(
    table: CostTable, parted: tuple[float, str] | None, logged: str | None, seed: int
) -> tuple[CostTable, CostTable | None]:
    """Return the training rows, including those of a log, and the held-out rows, if any."""
    from mildroute.cli._output import load_table, split_of

    train, held = table, None
    if parted is not None:
        train, held = table.split(parted[0], by=split_of(table, parted[1]), seed=seed)
    if logged is not None:
        train = train.concat(load_table(logged, missing="keep", partial=True))
    return train, held


def add_expert(
    folder: _Stored,
    table: _Table,
    scores: _Scores = None,
    suggest: _Suggest = None,
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

    if (scores is None) == (suggest is None):
        raise ArgumentError("give one of --scores and --suggest, got both or neither.")
    router, old = _stored(folder, table)
    if suggest is not None:
        return _suggest(router, old, suggest, out, seed, as_json=as_json)
    _check_outputs(None, table, False, out)
    new = CostTable.read_new_expert(scores, old.experts)
    train, note = with_new_expert(old, new, router.encoder_, seed=seed)
    return _fit_again(router, train, out, seed, (note,), as_json=as_json)


def remove_expert(
    folder: _Stored,
    name: Annotated[str, typer.Argument(metavar="EXPERT", help="Name of the expert.")],
    table: _Table,
    out: _NewOut = Path("router-new"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Remove an EXPERT from a ROUTER and refit it on the others.

    Example: mildroute remove-expert router gpt-4 --table costs.parquet --out router-new
    """
    router, old = _stored(folder, table)
    if name not in old.experts:
        raise ArgumentError(
            f"the router has no expert {name!r}; it has {', '.join(map(repr, old.experts))}."
        )
    _check_outputs(None, table, False, out)
    left = old.select([each for each in old.experts if each != name])
    _fit_again(router, left, out, seed, (), as_json=as_json)


def reprice(
    folder: _Stored,
    table: _Table,
    prices: _NewPrices,
    output_tokens: OutputTokens = None,
    out: _NewOut = Path("router-new"),
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Refit a ROUTER at new prices, with the queries and scores of its table.

    Example: mildroute reprice router --table costs.parquet --prices prices.json --out router-new
    """
    router, new = _stored(folder, table, prices, output_tokens)
    _check_outputs(None, table, False, out)
    _fit_again(router, new, out, seed, (), as_json=as_json)


def _stored(
    folder: Path, source: str, prices: Path | None = None, output_tokens: float | None = None
) -> tuple[TextRouter, CostTable]:
    """Return a stored router, and a table of its experts."""
    from mildroute.cli._output import load_table
    from mildroute.fitting.text_router import TextRouter
    from mildroute.persistence.artifact import load_router

    router = load_router(folder)
    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"the router must have been fitted on texts by 'mildroute fit', got"
            f" {type(router).__name__}; fit it again."
        )
    experts = [str(name) for name in router.experts_[: router.n_experts]]
    reading: dict[str, Any] = {"prices": prices, "output_tokens": output_tokens}
    return router, load_table(source, experts=experts, missing="keep", partial=True, **reading)


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
            "queries are chosen from a table in which all experts were asked on all rows, got a"
            " partial one; leave out the other rows."
        )
    if count > len(table):
        raise ArgumentError(
            f"--suggest must be at most {len(table)}, the table's rows, got {count}."
        )
    known = known_experts(table, router.encoder_, seed=seed)
    rows = known.order_queries(count, random_state=seed)
    pq.write_table(table.arrow.select(["query_id", "input"]).take(rows), out)
    if as_json:
        return print_json({"queries": str(out), "rows": count})
    return typer.echo(f"{count} queries in {out}: score the new expert on them, then pass --scores")


def _fit_again(
    router: TextRouter,
    train: CostTable,
    out: Path,
    seed: int,
    notes: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    from dataclasses import replace

    from mildroute.fitting.refit import refit

    with progress_bar("fit") as tell:
        fitted = refit(router, train, seed=seed, progress=tell)
    fitted = replace(fitted, warnings=(*notes, *fitted.warnings))
    report = {**_save(fitted, out, train), "headline": fitted.headline}
    if as_json:
        return print_json(report)
    return _show(fitted, report, None, is_default=True)


def _chosen_router(name: str, seed: int, thorough: bool, jobs: int | None) -> Any:
    """Return the router that --router names; ``None`` for the default."""
    from mildroute.persistence.registry import get_router

    if jobs == 0:
        raise ArgumentError("--jobs must be a number of processes, or -1 for one a core, got 0.")
    if name == _DEFAULT:
        return None
    if thorough:
        raise ArgumentError(
            f"--thorough tries methods by itself, got --router {name}; leave one of them out."
        )
    return get_router(name, random_state=seed)


def _save(fitted: FittedRouter, out: Path, train: CostTable) -> dict[str, Any]:
    """Store the router; returns what --json prints."""
    from mildroute.fitting.descriptions import describe_router
    from mildroute.persistence.artifact import save_router

    about = describe_router(fitted.router)
    folder = save_router(fitted.router, out, card=fitted.card(train))
    return _as_dict(fitted, about, folder, len(train))


def _check_outputs(hold_out: str | None, source: str, force: bool, out: Path) -> None:
    from mildroute.persistence.artifact import check_replaceable

    check_replaceable(out)
    if hold_out is None:
        return
    if Path(hold_out).suffix not in _SUFFIXES:
        raise ArgumentError(
            f"--hold-out must be a file that ends in {', '.join(_SUFFIXES)}, got {hold_out!r}."
        )
    if Path(source).exists() and Path(hold_out).resolve() == Path(source).resolve():
        raise ArgumentError(
            f"--hold-out must not be the table itself, got {hold_out!r}; choose another file."
        )
    if Path(hold_out).exists() and not force:
        raise ArgumentError(
            f"--hold-out must be a new file, got {hold_out!r}, which exists; remove it, or add"
            " --force."
        )


def _as_dict(
    fitted: FittedRouter, about: Mapping[str, str], folder: Path, rows: int
) -> dict[str, Any]:
    from mildroute._format import to_jsonable

    point = fitted.point
    known = (
        None
        if point is None
        else to_jsonable(point) | {"price_weight": point.price_weight, "is_mixed": point.is_mixed}
    )
    experts = list(fitted.router.experts_)
    said = {
        "router": str(folder),
        "about": dict(about),
        "rows": rows,
        "experts": experts,
        "point": known,
        "note": fitted.note,
    }
    return said | {
        "lines": to_jsonable(fitted.lines),
        "new_groups": to_jsonable(fitted.new_groups),
        "later": to_jsonable(fitted.later),
        "method": getattr(fitted.router.router_, "selection_", None),
        "warnings": list(fitted.warnings),
    }


def _show(
    fitted: FittedRouter, report: Mapping[str, Any], hold_out: str | None, *, is_default: bool
) -> None:
    from mildroute._format import pluralize

    folder = report["router"]
    method = "" if is_default else f", by {report['about']['method']}"
    print_lines(fitted.lines)
    if report["headline"] is not None:
        typer.echo(report["headline"])
    typer.echo(f"router in {folder}, learned from {pluralize(report['rows'], 'query')}{method}")
    if fitted.point is None:
        print_notes([fitted.note], mark="")
    else:
        _show_point(fitted, fitted.point)
    if fitted.new_groups is not None:
        print_notes([fitted.new_groups.sentence], mark="")
    if fitted.later is not None:
        print_notes([fitted.later.sentence], mark="")
    print_notes(fitted.warnings, mark="note:")
    if hold_out is not None:
        typer.echo(f"measure it: mildroute evaluate {folder} {hold_out} --report report.html")


def _method(fitted: FittedRouter, point: OperatingPoint) -> str:
    from mildroute._format import pluralize

    choice: str = fitted.router.router_.selection_
    looks = len(fitted.router.experts_) - fitted.router.n_experts
    if looks:
        return f"a cascade with {pluralize(looks, 'look')} to choose from; without them, {choice}"
    return (
        choice
        if point.uses_router
        else f"single experts alone, which promise the most here; over all budgets, {choice}"
    )


def _show_point(fitted: FittedRouter, point: OperatingPoint) -> None:
    from mildroute._format import format_number
    from mildroute.evaluation.resampling import Interval
    from mildroute.evaluation.savings_sentences import shown_interval
    from mildroute.fitting.descriptions import split_words

    score = shown_interval(Interval(point.score, *point.score_interval), "{:.3f}")
    ends = (point.dollars_per_1000, *point.dollars_interval)
    bill, low, high = (format_number(end, "{:.4g}") for end in ends)
    names = list(fitted.router.experts_)
    looks = len(names) - fitted.router.n_experts
    print_notes(
        [
            f"operating point: {fitted.note}",
            f"it {split_words(point, names, looks)}",
            f"method: {_method(fitted, point)}",
            (
                f"expected on further queries: score {score}, {bill} dollars per 1,000 [{low},"
                f" {high}]"
            ),
        ],
        mark="",
    )
    shares = zip(names, point.shares, strict=True)
    print_table(
        "",
        ["expert", "share"],
        [[name, f"{share:.1%}"] for name, share in sorted(shares, key=lambda pair: -pair[1])],
    )
