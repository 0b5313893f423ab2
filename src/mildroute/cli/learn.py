"""``mildroute learn`` and ``mildroute rollout``: how routers come to gateways."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._options import AsJson, Budget, Encoder, PriceWeight, Quality, target_of
from mildroute.cli._output import print_json
from mildroute.exceptions import ArgumentError, MildrouteError

if TYPE_CHECKING:
    from mildroute.persistence.remote import Pointer

__all__ = ["learn_from_log", "rollout"]


rollout = typer.Typer(
    name="rollout",
    help="Roll out a router to the gateways that follow a pointer, at once or as a canary.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_RouterFolder: TypeAlias = Annotated[
    Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")
]
_PointerUrl: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="POINTER",
        help="URL or path of the pointer, such as s3://models/routers/prod.json.",
    ),
]


@rollout.command("sign")
def sign(
    router: _RouterFolder,
    key: Annotated[
        Path,
        typer.Option(
            help="PEM file of an Ed25519 private key, from openssl genpkey -algorithm ed25519."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Sign a ROUTER that gateways load from its folder, by writing router.json.sig there.

    Example: mildroute rollout sign router --key signing.pem
    """
    from mildroute.persistence.remote import sign_router

    digest = sign_router(router, key)
    if as_json:
        print_json({"router": str(router), "digest": digest})
    else:
        typer.echo(f"{router} is signed: {digest}")


@rollout.command("publish")
def publish(
    router: _RouterFolder,
    pointer: _PointerUrl,
    key: Annotated[
        Path | None,
        typer.Option(
            help="Sign with this PEM file; by default, keep the router's signature if it has one."
        ),
    ] = None,
    canary: Annotated[
        float | None,
        typer.Option(
            help="Publish as a canary that gets this share of requests; by default it gets all.",
            metavar="SHARE",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Upload a ROUTER next to a POINTER under its digest, verify it, and update the pointer.

    Example: mildroute rollout publish router s3://models/routers/prod.json --key signing.pem
    """
    from mildroute.persistence.remote import publish_router

    def report(line: str) -> None:
        typer.echo(line, err=True)

    _show(publish_router(router, pointer, key=key, canary=canary, report=report), as_json=as_json)


@rollout.command("promote")
def promote(pointer: _PointerUrl, as_json: AsJson = False) -> None:
    """Promote the canary of a POINTER to serve all requests.

    Example: mildroute rollout promote s3://models/routers/prod.json
    """
    from mildroute.persistence.remote import promote_canary

    _show(promote_canary(pointer), as_json=as_json)


@rollout.command("rollback")
def rollback(pointer: _PointerUrl, as_json: AsJson = False) -> None:
    """Remove the canary of a POINTER or, if it has none, return to the previous router.

    Example: mildroute rollout rollback s3://models/routers/prod.json
    """
    from mildroute.persistence.remote import roll_back

    _show(roll_back(pointer), as_json=as_json)


def _show(pointer: Pointer, *, as_json: bool) -> None:
    if as_json:
        print_json(pointer.document())
    elif pointer.canary is None:
        typer.echo(f"{pointer.digest[:16]} serves all requests.")
    else:
        typer.echo(
            f"{pointer.digest[:16]} serves, and the canary {pointer.canary[:16]} gets"
            f" {pointer.share:g} of the requests."
        )


_State: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="STATE",
        help="Folder or URL for candidates, reports, verdicts and the audit trail.",
    ),
]
_Log: TypeAlias = Annotated[
    str, typer.Option("--log", help="Folder of the decision log, or the URL it is shipped to.")
]
_Pointer: TypeAlias = Annotated[
    str,
    typer.Option("--pointer", help="URL or path of the pointer that the gateways follow."),
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
_Default: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Expert that serves before the first router; by default the one that served most."
    ),
]
_Once: TypeAlias = Annotated[
    bool, typer.Option("--once", help="Run one step and exit; the default without --every.")
]
_Every: TypeAlias = Annotated[
    float | None,
    typer.Option(
        help="Run until stopped, with this many seconds between steps.", metavar="SECONDS", min=0.0
    ),
]
_Key: TypeAlias = Annotated[
    Path | None, typer.Option(help="Sign published routers with this PEM file.")
]


def learn_from_log(
    state: _State,
    log: _Log,
    pointer: _Pointer,
    table: _Tables = None,
    experts: _ExpertsFile = None,
    default: _Default = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    encoder: Encoder = "auto",
    once: _Once = False,
    every: _Every = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(
            "--plan",
            help="Override a setting of the plan, such as canary_share=0.3; may be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    key: _Key = None,
    as_json: AsJson = False,
) -> None:
    """Fit routers on a gateway's log, try them on a share of requests, and promote better ones.

    Each run takes one step and records it in the audit trail of STATE. A step fits a candidate,
    compares it in shadow mode, gives it a share of requests (a canary), promotes or drops it,
    watches it, or rolls it back. Frequent runs do not make errors more likely. A killed learner
    resumes.

    Example: mildroute learn learning --log decisions --pointer routers/prod.json --every 3600
    """
    from mildroute.learning.learner import Learner
    from mildroute.persistence.registry import get_encoder

    if once and every is not None:
        raise ArgumentError("give --once or --every, got both; --once is the default.")
    learner = Learner(
        state,
        log,
        pointer,
        tables=tuple(table or ()),
        experts=_names(experts),
        default=default,
        encoder=get_encoder(encoder),
        target=target_of(budget, quality, price_weight),
        key=key,
        plan=_plan(plan or []),
    )
    if every is None:
        _tell(learner.look(), as_json=as_json)
        return
    while True:
        try:
            _tell(learner.look(), as_json=as_json)
        except MildrouteError as error:  # such as storage that cannot be reached now
            typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        time.sleep(every)


def _names(path: Path | None) -> tuple[str, ...] | None:
    from mildroute.experts.config import read_experts

    return None if path is None else tuple(spec.name for spec in read_experts(path).experts)


def _plan(given: list[str]) -> Any:
    from mildroute.evaluation.rollout import LearningPlan

    values: dict[str, Any] = {}
    usual = LearningPlan()
    for each in given:
        name, _, value = each.partition("=")
        try:
            values[name] = type(getattr(usual, name))(value)
        except (AttributeError, ValueError):
            names = ", ".join(vars(usual))
            raise ArgumentError(
                f"--plan must be NAME=VALUE, a number for one of {names}, got {each!r}."
            ) from None
    return LearningPlan(**values)


def _tell(entry: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({name: value for name, value in entry.items() if name != "state"})
        return
    moment = datetime.fromtimestamp(entry["time"], UTC).strftime("%Y-%m-%d %H:%M:%S")
    candidate = f" {entry['candidate'][:16]}" if entry.get("candidate") else ""
    typer.echo(f"{moment} {entry['event']}{candidate}: {entry['why']}")
