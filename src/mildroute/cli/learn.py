"""``mildroute learn``: fit a candidate on a gateway's log and say whether to promote it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from mildroute.cli._expand import expand_options
from mildroute.cli._options import AsJson, Encoder, TargetOptions
from mildroute.cli._output import print_json, print_sentence
from mildroute.exceptions import ArgumentError

__all__ = ["KEEP", "learn_from_log"]

# Exit code if the candidate is not shown to be better.
KEEP = 5

_Log: TypeAlias = Annotated[
    str, typer.Argument(metavar="LOG", help="Folder or URL of the decision log.")
]
_Output: TypeAlias = Annotated[
    Path, typer.Option("--output", "-o", help="Folder to write the candidate to.")
]
_Router: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=(
            "Folder or URL of the router in use; by default, a candidate must beat the logged"
            " choices."
        )
    ),
]
_Tables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--table", help="Cost table to fit on in addition to the log; may be repeated."),
]
_ExpertsFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        help="Consider only the experts in this file; all by default.", metavar="experts.yaml"
    ),
]
_Alpha: TypeAlias = Annotated[
    float,
    typer.Option(help="Probability that any run promotes a candidate that is not better."),
]
_MinRows: TypeAlias = Annotated[
    int, typer.Option(help="Number of scored decisions to fit the first candidate on.")
]
_MinPropensity: TypeAlias = Annotated[
    float, typer.Option(help="Minimum probability of an explored answer that counts.")
]


@expand_options
def learn_from_log(
    log: _Log,
    target: TargetOptions,
    output: _Output = Path("candidate"),
    router: _Router = None,
    table: _Tables = None,
    experts: _ExpertsFile = None,
    encoder: Encoder = "auto",
    alpha: _Alpha = 0.05,
    min_rows: _MinRows = 200,
    min_propensity: _MinPropensity = 0.01,
    as_json: AsJson = False,
) -> None:
    """Fit a candidate on a gateway's log and say whether it may replace the router in use.

    The exit code is 0 if the candidate is better than the router in use, and 5 if the router in use
    should be kept. Run it at any time and as often as you like: the error probability covers all
    runs together, and no state is kept between them.

    Example: mildroute learn decisions --router router --output candidate && mv candidate router
    """
    from mildroute.learning.learn import LearnOptions, learn
    from mildroute.persistence.artifact import check_replaceable, save_router
    from mildroute.persistence.named_encoders import get_encoder

    check_replaceable(output)
    options = LearnOptions(
        tables=tuple(table or ()),
        experts=_names(experts),
        encoder=get_encoder(encoder),
        target=target.target,
        alpha=alpha,
        min_rows=min_rows,
        min_propensity=min_propensity,
    )
    result = learn(log, None if router is None else _text_router(router), options)
    if result.candidate is not None:
        save_router(result.candidate.router, output)
    if as_json:
        print_json(result.to_json() | {"output": str(output) if result.candidate else None})
    else:
        print_sentence(f"{result.action}: {result.why}.")
        if result.candidate is not None:
            print_sentence(
                f"Candidate {result.number} is in {output}, fitted on {result.trained_on:,} rows."
            )
    if result.action == "keep":
        raise typer.Exit(KEEP)


def _text_router(location: str) -> Any:
    from mildroute.fitting.text_router import TextRouter
    from mildroute.persistence.artifact import load_router

    router = load_router(location)
    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"--router must be a router over texts, got a {type(router).__name__}; give one that"
            " mildroute fit stored."
        )
    return router


def _names(path: Path | None) -> tuple[str, ...] | None:
    from mildroute.experts.config import read_experts

    return None if path is None else tuple(spec.name for spec in read_experts(path).experts)
