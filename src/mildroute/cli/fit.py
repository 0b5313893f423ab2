"""``mildroute fit``: fit a router on a cost table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from mildroute.cli._expand import expand_options
from mildroute.cli._options import (
    AsJson,
    Encoder,
    Experts,
    Seed,
    Source,
    SplitOptions,
    TableOptions,
    TargetOptions,
)
from mildroute.cli._output import progress_bar
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable

__all__ = ["fit_router"]


_SUFFIXES = (".parquet", ".csv", ".jsonl")
_DEFAULT = "auto"

_Out: TypeAlias = Annotated[
    Path, typer.Option("--out", help="Folder for the router; replaces any router already there.")
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
            "Name of a router, plug-in or loss, such as knn; auto chooses between cost regression"
            " and MildRouter."
        ),
    ),
]
_Thorough: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--thorough",
        help=(
            "Fit MildRouter on all rows even if it does worse on a sample; several times slower."
        ),
    ),
]
_Cascade: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--cascade",
        help=(
            "Where it pays, read a cheap expert's answer before choosing another; needs answers"
            " (collect --answers)."
        ),
    ),
]
_AnswerCharacters: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--answer-characters",
        help="Number of leading characters of each answer that a cascade reads; all by default.",
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
    Literal["time"] | None,
    typer.Option(
        "--order",
        help="time: also measure the router on the latest fifth of the rows, to detect drift.",
    ),
]


@dataclass(frozen=True)
class HoldOutOptions:
    """Options for holding out rows for ``mildroute evaluate``."""

    hold_out: _HoldOut = None
    force: _Force = False


@dataclass(frozen=True)
class MethodOptions:
    """Options for the method, and the baseline that its savings are measured against."""

    encoder: Encoder = "auto"
    router: _Router = _DEFAULT
    thorough: _Thorough = False
    cascade: _Cascade = False
    answer_characters: _AnswerCharacters = None
    jobs: _Jobs = None
    baseline: _Baseline = None
    order: _Order = None


@expand_options
def fit_router(
    source: Source,
    target: TargetOptions,
    hold_out_options: HoldOutOptions,
    split: SplitOptions,
    method: MethodOptions,
    reading: TableOptions,
    out: _Out = Path("router"),
    experts: Experts = None,
    logged: _Logged = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Fit a router on a TABLE and store it in a folder.

    Example: mildroute fit costs.parquet --budget 1.5 --out router --hold-out held_out.parquet
    """
    from mildroute.cli._fit_report import report_fit, save_fitted
    from mildroute.cli._tables import judge_of, load_table, names_in, split_of
    from mildroute.fitting.fit import FitOptions, fit_table
    from mildroute.persistence.named_encoders import get_encoder

    router = _router_named(method, seed)
    chosen_target = target.target
    _check_outputs(hold_out_options, source, out)
    hold_out = hold_out_options.hold_out
    train = load_table(
        source,
        reading,
        experts=names_in(experts),
        answers=method.cascade,
        partial=hold_out is None,
    )
    held_out: CostTable | None = None
    if hold_out is not None:
        train, held_out = train.split(split.test, by=split_of(train, split.by), seed=seed)
    if logged is not None:
        train = train.concat(load_table(logged, TableOptions(missing="keep"), partial=True))
    if split.by == "group":
        train = train.with_whole_groups()
    options = FitOptions(
        encoder=get_encoder(method.encoder),
        router=router,
        target=chosen_target,
        thorough=method.thorough or "auto",
        n_jobs=method.jobs,
        seed=seed,
        judge=judge_of(source),
        cascade=method.cascade,
        answer_characters=method.answer_characters,
        baseline=method.baseline,
        order=method.order,
    )
    with progress_bar("fit") as progress:
        fitted = fit_table(train, options, progress=progress)
    folder = save_fitted(fitted, out, train)
    if held_out is not None:  # saved last, so that the rows match the stored router
        held_out.save(str(hold_out))
    report_fit(
        fitted,
        folder,
        len(train),
        hold_out=hold_out,
        is_default=method.router == _DEFAULT,
        as_json=as_json,
    )


def _router_named(method: MethodOptions, seed: int) -> Any:
    """Return the router that --router names; ``None`` for the default."""
    from mildroute.persistence.named_routers import get_router

    if method.jobs == 0:
        raise ArgumentError("--jobs must be a number of processes, or -1 for one per core, got 0.")
    if method.router == _DEFAULT:
        return None
    if method.thorough:
        raise ArgumentError(
            f"--thorough chooses the method itself, got --router {method.router}; leave one of them"
            " out."
        )
    return get_router(method.router, random_state=seed)


def _check_outputs(hold_out_options: HoldOutOptions, source: str, out: Path) -> None:
    """Fail early if an output path must not be overwritten."""
    from mildroute.persistence.artifact import check_replaceable

    check_replaceable(out)
    hold_out = hold_out_options.hold_out
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
    if Path(hold_out).exists() and not hold_out_options.force:
        raise ArgumentError(
            f"--hold-out must be a new file, got {hold_out!r}, which exists; remove it, or add"
            " --force."
        )
