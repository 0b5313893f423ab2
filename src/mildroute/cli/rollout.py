"""``mildroute rollout`` brings routers to gateways: sign, publish, promote, roll back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import print_json

if TYPE_CHECKING:
    from mildroute.persistence.remote import Pointer

__all__ = ["rollout"]


rollout = typer.Typer(
    name="rollout",
    help="Bring a router to the gateways that follow a pointer, all at once or a share first.",
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
            help="PEM file of an Ed25519 private key; openssl genpkey -algorithm ed25519 makes one."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Write router.json.sig beside the files of a ROUTER that gateways load from its folder.

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
            help="Sign it with this PEM file; else its own signature is taken, if it has one."
        ),
    ] = None,
    canary: Annotated[
        float | None,
        typer.Option(
            help="Give it this share of requests, beside the router that serves.", metavar="SHARE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Upload a ROUTER beside a POINTER under its digest, verify it, and let the pointer name it.

    Example: mildroute rollout publish router s3://models/routers/prod.json --key signing.pem
    """
    from mildroute.persistence.remote import publish_router

    def report(line: str) -> None:
        typer.echo(line, err=True)

    _show(publish_router(router, pointer, key=key, canary=canary, report=report), as_json=as_json)


@rollout.command("promote")
def promote(pointer: _PointerUrl, as_json: AsJson = False) -> None:
    """Let the canary of a POINTER serve all requests.

    Example: mildroute rollout promote s3://models/routers/prod.json
    """
    from mildroute.persistence.remote import promote_canary

    _show(promote_canary(pointer), as_json=as_json)


@rollout.command("rollback")
def rollback(pointer: _PointerUrl, as_json: AsJson = False) -> None:
    """Remove the canary of a POINTER or, if it has none, go back to the router before.

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
