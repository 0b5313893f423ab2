"""``mildroute route``: which expert should answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mildroute.cli.options import AsJson
from mildroute.cli.output import print_json, print_table, progress_bar
from mildroute.errors import ArgumentError

__all__ = ["route_inputs"]

_JSON = (".json", ".jsonl", ".ndjson")


def route_inputs(
    folder: Annotated[Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")],
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The input; leave it out with --file.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Many inputs: a text a line, or JSON lines with 'input' or 'text'.")] = None,
    price_weight: Annotated[
        float | None, typer.Option("--price-weight", help="Another operating point than the stored one.", min=0)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Ask a stored ROUTER which expert should answer a TEXT.

    Example: mildroute route router "Prove that there are infinitely many primes."
    """
    from mildroute.routers.artifact import load_router

    if (text is None) == (file is None):
        raise ArgumentError("give a TEXT or --file, one of them.")
    inputs = [text] if file is None else _lines(file)
    with progress_bar("route") as tell:
        tell(0, 1, f"{len(inputs):,} inputs")
        decisions = _decisions(load_router(folder), inputs, price_weight)
    if as_json or file is not None:
        _print_decisions(decisions, one=file is None)
    else:
        ranking = decisions[0]["ranking"]
        print_table("", ["expert", "posterior"], [[entry["expert"], f"{entry['posterior']:.3f}"] for entry in ranking])
        typer.echo(decisions[0]["expert"])


def _decisions(router: Any, inputs: list[Any], price_weight: float | None) -> list[dict[str, Any]]:
    if not hasattr(router, "encoder_"):
        raise ArgumentError(f"this router ({type(router).__name__}) reads vectors, not texts; fit one with mildroute fit.")
    extra = {} if price_weight is None else {"price_weight": price_weight}
    names, posterior, ranks = router.experts_, router.predict_proba(inputs, **extra), router.rank(inputs, **extra)
    return [
        {
            "expert": names[order[0]],
            "ranking": [{"expert": names[k], "posterior": round(float(row[k]), 6)} for k in order],
        }
        for row, order in zip(posterior, ranks, strict=True)
    ]


def _print_decisions(decisions: list[dict[str, Any]], *, one: bool) -> None:
    if one:
        print_json(decisions[0])
        return
    for decision in decisions:
        typer.echo(json.dumps(decision, ensure_ascii=False))


def _lines(path: Path) -> list[str]:
    try:
        # Only a line feed ends a line: JSON may hold other separators.
        lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{str(path)!r} must be a readable text file, got: {error}.") from error
    for place, line in enumerate(lines, 1):
        if not line.strip():
            raise ArgumentError(f"every line must be an input, got an empty line {place} of {str(path)!r}; remove it.")
    return (
        [_input_of(line, place) for place, line in enumerate(lines, 1)] if path.suffix in _JSON else [line.rstrip("\r") for line in lines]
    )


def _input_of(line: str, place: int) -> str:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ArgumentError(f"line {place} must be JSON, got: {error}.") from error
    value = entry.get("input", entry.get("text")) if isinstance(entry, dict) else entry
    if not isinstance(value, str):
        raise ArgumentError(f"line {place} must have a text under 'input' or 'text', got {value!r:.80}.")
    return value
