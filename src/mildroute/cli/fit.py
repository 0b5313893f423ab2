"""``mildroute fit``: from a table to a router in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mildroute.cli.options import AsJson, By, Encoder, Experts, Missing, OutputTokens, Prices, Seed, Source, TestShare
from mildroute.cli.output import print_json, print_notes, print_table, progress_bar
from mildroute.errors import ArgumentError

if TYPE_CHECKING:
    from mildroute.costs.table import CostTable
    from mildroute.evaluation.fitting import Fitted, Target
    from mildroute.routers.operating import OperatingPoint

__all__ = ["fit_router"]

_SUFFIXES = (".parquet", ".csv", ".jsonl")
_DEFAULT = "MildRouter"


def fit_router(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="Folder of the router; replaced if it holds one.")] = Path("router"),
    budget: Annotated[float | None, typer.Option("--budget", help="At most this many dollars per 1,000 queries.", min=0)] = None,
    quality: Annotated[
        float | None, typer.Option("--quality", help="At least this share of the best single expert's score.", min=0)
    ] = None,
    price_weight: Annotated[float | None, typer.Option("--price-weight", help="How many errors one dollar is worth.", min=0)] = None,
    hold_out: Annotated[str | None, typer.Option("--hold-out", help="Keep rows apart for evaluate and write them to this file.")] = None,
    test: TestShare = 0.2,
    by: By = "auto",
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --hold-out if it exists.")] = False,
    experts: Experts = None,
    prices: Prices = None,
    output_tokens: OutputTokens = None,
    encoder: Encoder = "auto",
    router: Annotated[str, typer.Option("--router", help="Fit this one: a router's class, a plug-in or a loss.")] = _DEFAULT,
    seed: Seed = 0,
    missing: Missing = "refuse",
    as_json: AsJson = False,
) -> None:
    """Fit a router on a TABLE and keep it in a folder.

    Example: mildroute fit costs.parquet --budget 1.5 --out router --hold-out held_out.parquet
    """
    from mildroute.cli.loading import judge_of, load_table, split_of
    from mildroute.costs.counted import counted
    from mildroute.encoders.named import encoder_named
    from mildroute.evaluation.fitting import fit_table
    from mildroute.evaluation.method import about_router
    from mildroute.routers.artifact import check_replaceable, save
    from mildroute.routers.named import router_named

    target, chosen = _target(budget, quality, price_weight), router_named(router, random_state=seed)
    check_replaceable(out)
    _check_hold_out(hold_out, source, force)
    table = load_table(source, experts=experts, prices=prices, output_tokens=output_tokens, missing=missing)
    judge = judge_of(source)
    train, held = (table, None) if hold_out is None else table.split(test, by=split_of(table, by), seed=seed)
    with progress_bar("fit") as tell:
        fitted = fit_table(train, encoder=encoder_named(encoder), router=chosen, target=target, seed=seed, progress=tell)
    fitted.router.judge_ = judge
    about = about_router(fitted.router)
    folder = save(fitted.router, out, card=_card(fitted, about, train))
    if held is not None and hold_out is not None:
        # Last, so that rows kept apart always belong to the router beside them.
        held.write(hold_out)
    if as_json:
        print_json(_as_dict(fitted, about, folder, len(train)))
    else:
        method = "" if router == _DEFAULT else f", by {about['method']}"
        typer.echo(f"router in {folder}, learnt from {counted(len(train), 'query')}{method}")
        _show(fitted, folder, hold_out)


def _check_hold_out(hold_out: str | None, source: str, force: bool) -> None:
    if hold_out is None:
        return
    if Path(hold_out).suffix not in _SUFFIXES:
        raise ArgumentError(f"--hold-out must be a file that ends in {', '.join(_SUFFIXES)}, got {hold_out!r}.")
    if Path(source).exists() and Path(hold_out).resolve() == Path(source).resolve():
        raise ArgumentError(f"--hold-out must not be the table itself, got {hold_out!r}; choose another file.")
    if Path(hold_out).exists() and not force:
        raise ArgumentError(f"--hold-out must be a new file, got {hold_out!r}, which exists; remove it, or add --force.")


def _card(fitted: Fitted, about: Mapping[str, str], train: CostTable) -> dict[str, object]:
    told = "; ".join(f"{title}: {value}" for title, value in about.items())
    card: dict[str, object] = {"notes": f"Operating point: {fitted.note}. {told[:1].upper()}{told[1:]}.", "rows": len(train)}
    if train.prices is not None:
        listed = {name: {"input": price.input, "output": price.output} for name, price in train.prices.prices.items()}
        dated = {"date": train.prices.date, "source": train.prices.source}
        card["prices"] = {key: value for key, value in dated.items() if value} | {
            "unit": "dollars per million tokens",
            "experts": {name: listed[name] for name in train.experts},
        }
    return card


def _target(budget: float | None, quality: float | None, price_weight: float | None) -> Target | None:
    from mildroute.evaluation.fitting import Target

    given = {"budget": budget, "quality": quality, "price weight": price_weight}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ArgumentError(f"give one of --budget, --quality and --price-weight, got {len(named)}.")
    for name, value in named.items():
        return Target(name, value)  # type: ignore[arg-type]
    return None


def _as_dict(fitted: Fitted, about: Mapping[str, str], folder: Path, rows: int) -> dict[str, object]:
    point = None if fitted.point is None else vars(fitted.point)
    experts = list(fitted.router.experts_)
    return {"router": str(folder), "about": dict(about), "rows": rows, "experts": experts, "point": point, "note": fitted.note}


def _show(fitted: Fitted, folder: Path, hold_out: str | None) -> None:
    if fitted.point is None:
        print_notes([fitted.note], mark="")
    else:
        _show_point(fitted, fitted.point)
    if hold_out is not None:
        typer.echo(f"measure it: mildroute evaluate {folder} {hold_out} --report report.html")


def _show_point(fitted: Fitted, point: OperatingPoint) -> None:
    low, high = point.dollars_interval
    print_notes(
        [
            f"operating point: {fitted.note} (price weight {point.price_weight:.4g})",
            f"expected on further queries: score {point.score:.3f} [{point.score_interval[0]:.3f}, {point.score_interval[1]:.3f}], "
            f"{point.dollars_per_1000:.4g} dollars per 1,000 [{low:.4g}, {high:.4g}]",
        ],
        mark="",
    )
    shares = zip(fitted.router.experts_, point.shares, strict=True)
    print_table("", ["expert", "share"], [[name, f"{share:.1%}"] for name, share in sorted(shares, key=lambda pair: -pair[1])])
