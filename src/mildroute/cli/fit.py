"""``mildroute fit``: from a table to a router in a folder."""

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
    Missing,
    OutputTokens,
    Prices,
    PriceWeight,
    Quality,
    Seed,
    Source,
    TestShare,
    target_of,
)
from mildroute.cli._output import print_json, print_notes, print_table, progress_bar
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute._fit import FitResult
    from mildroute.costs.table import CostTable
    from mildroute.routers.operating_point import OperatingPoint, Target

__all__ = ["fit_router"]


_SUFFIXES = (".parquet", ".csv", ".jsonl")
_DEFAULT = "auto"


_Out: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder of the router; replaced if it holds one.")
]
_HoldOut: TypeAlias = Annotated[
    str | None,
    typer.Option("--hold-out", help="Keep rows apart for evaluate and write them to this file."),
]
_Force: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Replace the file of --hold-out if it exists.")
]
_Router: TypeAlias = Annotated[
    str,
    typer.Option(
        "--router",
        help=(
            "Fit this one: a router's class, a plug-in or a loss; auto: cost regression, if"
            " there are dollars."
        ),
    ),
]
_Thorough: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--thorough",
        help=(
            "Fit MildRouter on all rows, too, even if a sample is against it; several times slower."
        ),
    ),
]
_Cascade: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cascade",
        help=(
            "Look at answers before deciding, where that is worth it; the table needs them"
            " (collect --answers)."
        ),
    ),
]
_AnswerCharacters: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--answer-characters",
        help=(
            "Let a cascade see only so many characters of an answer, from its beginning, as a"
            " gateway sees streams (routing.stream_looks: first)."
        ),
        min=1,
    ),
]
_Jobs: TypeAlias = Annotated[
    int | None,
    typer.Option("--jobs", help="Processes that fit side by side; -1: one a core.", min=-1),
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
    output_tokens: OutputTokens = None,
    encoder: Encoder = "auto",
    router: _Router = _DEFAULT,
    thorough: _Thorough = False,
    cascade: _Cascade = False,
    answer_characters: _AnswerCharacters = None,
    jobs: _Jobs = None,
    seed: Seed = 0,
    missing: Missing = "raise",
    as_json: AsJson = False,
) -> None:
    """Fit a router on a TABLE and keep it in a folder.

    Example: mildroute fit costs.parquet --budget 1.5 --out router --hold-out held_out.parquet
    """
    from mildroute._fit import fit
    from mildroute.cli._output import judge_of, load_table, split_of
    from mildroute.persistence.artifact import check_replaceable
    from mildroute.persistence.registry import get_encoder

    target = target_of(budget, quality, price_weight)
    given: dict[str, Any] = {"router": _chosen_router(router, seed, thorough, jobs)}
    given |= {"cascade": cascade, "answer_characters": answer_characters}
    check_replaceable(out)
    _check_hold_out(hold_out, source, force)
    reading: dict[str, Any] = {"experts": experts, "prices": prices, "missing": missing}
    table = load_table(source, output_tokens=output_tokens, answers=cascade, **reading)
    train, held = table, None
    if hold_out is not None:
        train, held = table.split(test, by=split_of(table, by), seed=seed)
    given |= {"encoder": get_encoder(encoder), "target": target, "seed": seed}
    given |= {"thorough": thorough or "auto", "n_jobs": jobs, "judge": judge_of(source)}
    with progress_bar("fit") as tell:
        fitted = fit(train, progress=tell, **given)
    report = _save(fitted, out, train)
    if held is not None and hold_out is not None:
        # Last, so that rows kept apart always belong to the router beside them.
        held.save(hold_out)
    report["headline"] = _headline(fitted, target)
    if as_json:
        return print_json(report)
    return _show(fitted, report, hold_out, is_default=router == _DEFAULT)


def _chosen_router(name: str, seed: int, thorough: bool, jobs: int | None) -> Any:
    """The router that --router names, or none for the default."""
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


def _save(fitted: FitResult, out: Path, train: CostTable) -> dict[str, Any]:
    """Store the router; returns what --json prints."""
    from mildroute._fit import describe_router
    from mildroute.persistence.artifact import save_router

    about = describe_router(fitted.router)
    folder = save_router(fitted.router, out, card=_card(fitted, about, train))
    return _as_dict(fitted, about, folder, len(train))


def _check_hold_out(hold_out: str | None, source: str, force: bool) -> None:
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


def _card(fitted: FitResult, about: Mapping[str, str], train: CostTable) -> dict[str, object]:
    told = "; ".join(f"{title}: {value}" for title, value in about.items())
    card: dict[str, object] = {
        "notes": f"Operating point: {fitted.note}. {told[:1].upper()}{told[1:]}.",
        "rows": len(train),
    }
    if train.prices is not None:
        listed = {
            name: {"input": price.input, "output": price.output}
            for name, price in train.prices.prices.items()
        }
        dated = {"date": train.prices.date, "source": train.prices.source}
        card["prices"] = {key: value for key, value in dated.items() if value} | {
            "unit": "dollars per million tokens",
            "experts": {name: listed[name] for name in train.experts},
        }
    return card


def _headline(fitted: FitResult, target: Target | None) -> str | None:
    """What is saved against what, or that nothing is gained and why; none without dollars."""
    from mildroute._fit import only_expert, saving_words, why_constant

    point, names = fitted.point, list(fitted.router.experts_)
    if point is None:
        return None
    only = only_expert(point)
    if only is None:
        return saving_words(point, names)
    alone = (
        ""
        if only == point.best
        else f" by routing ({names[only]} alone {saving_words(point, names)})"
    )
    return (
        f"this router always picks {names[only]}: nothing is gained{alone};"
        f" {why_constant(fitted.router.router_, point, target)}"
    )


def _as_dict(
    fitted: FitResult, about: Mapping[str, str], folder: Path, rows: int
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
        "method": getattr(fitted.router.router_, "selection_", None),
        "warnings": list(fitted.warnings),
    }


def _show(
    fitted: FitResult, report: Mapping[str, Any], hold_out: str | None, *, is_default: bool
) -> None:
    from mildroute._format import pluralize

    folder = report["router"]
    method = "" if is_default else f", by {report['about']['method']}"
    if report["headline"] is not None:
        typer.echo(report["headline"])
    typer.echo(f"router in {folder}, learned from {pluralize(report['rows'], 'query')}{method}")
    if fitted.point is None:
        print_notes([fitted.note], mark="")
    else:
        _show_point(fitted, fitted.point)
    print_notes(fitted.warnings, mark="note:")
    if hold_out is not None:
        typer.echo(f"measure it: mildroute evaluate {folder} {hold_out} --report report.html")


def _method(fitted: FitResult, point: OperatingPoint) -> str:
    from mildroute._format import pluralize

    choice: str = fitted.router.router_.selection_
    looks = len(fitted.router.experts_) - fitted.router.n_experts
    if looks:
        return f"a cascade with {pluralize(looks, 'look')} to choose from; without them, {choice}"
    return (
        choice
        if point.uses_router
        else f"single experts alone, which promise the most here; along all bills, {choice}"
    )


def _show_point(fitted: FitResult, point: OperatingPoint) -> None:
    from mildroute._fit import split_words
    from mildroute.evaluation.cost_savings import shown_interval
    from mildroute.evaluation.intervals import Interval

    score = shown_interval(Interval(point.score, *point.score_interval), "{:.3f}")
    low, high = point.dollars_interval
    names = list(fitted.router.experts_)
    looks = len(names) - fitted.router.n_experts
    print_notes(
        [
            f"operating point: {fitted.note}",
            f"it {split_words(point, names, looks)}",
            f"method: {_method(fitted, point)}",
            (
                f"expected on further queries: score {score}, {point.dollars_per_1000:.4g} dollars"
                f" per 1,000 [{low:.4g}, {high:.4g}]"
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
