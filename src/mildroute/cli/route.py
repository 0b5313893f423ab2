"""``mildroute route``: which expert should answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from mildroute.cli._options import AsJson, Budget, PriceWeight, Quality, target_of
from mildroute.cli._output import print_json, print_table, progress_bar
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.pipeline import RoutedInput
    from mildroute.routers.operating_point import Target

__all__ = ["route_inputs"]


_JSON = (".json", ".jsonl", ".ndjson")


class _Input(NamedTuple):
    """An input, and the id that seeds the coin of its request, or none."""

    text: str
    request_id: str | None


def route_inputs(
    folder: Annotated[Path, typer.Argument(metavar="ROUTER", help="Folder of a stored router.")],
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="The input; leave it out with --file.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help=(
                "Many inputs: a text a line, or JSON lines with 'input' or 'text' and perhaps"
                " 'request_id' or 'id'."
            ),
        ),
    ] = None,
    request_id: Annotated[
        str | None,
        typer.Option(
            "--request-id",
            help="Seeds the coin of an operating point that mixes two; by default the text does.",
        ),
    ] = None,
    budget: Budget = None,
    quality: Quality = None,
    price_weight: PriceWeight = None,
    as_json: AsJson = False,
) -> None:
    """Show which expert a stored ROUTER chooses for a TEXT; the gateway decides the same.

    A budget, a quality or a price weight selects another operating point than the stored one.

    Example: mildroute route router "Prove that there are infinitely many primes."
    """
    from mildroute.persistence.artifact import load_router

    if (text is None) == (file is None):
        raise ArgumentError("give a TEXT or --file, one of them.")
    if file is not None and request_id is not None:
        raise ArgumentError(
            f"--request-id is for one TEXT, got --file {str(file)!r}; put a 'request_id' into its"
            " JSON lines."
        )
    target = target_of(budget, quality, price_weight)
    inputs = _lines(file) if file is not None else [_Input(text or "", request_id or None)]
    with progress_bar("route") as tell:
        tell(0, 1, f"{len(inputs):,} inputs")
        predictions = _predictions(load_router(folder), inputs, target)
    if file is not None:
        for one, prediction in zip(inputs, predictions, strict=True):
            typer.echo(json.dumps(_as_dict(one, prediction), ensure_ascii=False))
    elif as_json:
        print_json(_as_dict(inputs[0], predictions[0]))
    else:
        _show(predictions[0])


def _predictions(router: Any, inputs: list[_Input], target: Target | None) -> list[RoutedInput]:
    from mildroute._fit import point_of
    from mildroute.pipeline import TextRouter

    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"this router ({type(router).__name__}) reads vectors, not texts; fit one with"
            " mildroute fit."
        )
    ids = [each.text if each.request_id is None else each.request_id for each in inputs]
    return router.explain(
        [each.text for each in inputs], point=point_of(router, target), request_ids=ids
    )


def _as_dict(given: _Input, prediction: RoutedInput) -> dict[str, Any]:
    """All that a prediction holds; what it holds of each expert stands in the ranking."""
    ranking = [
        {
            "expert": prediction.experts[place],
            "probability": round(prediction.probabilities[place], 6),
            "posterior": round(prediction.posterior[place], 6),
            "score": None if prediction.scores is None else round(prediction.scores[place], 6),
            "dollars": (
                None if prediction.dollars is None else float(f"{prediction.dollars[place]:.6g}")
            ),
        }
        for place in prediction.ranking
    ]
    return {
        "expert": prediction.name,
        "reason": prediction.reason,
        "why": _why(prediction),
        "is_out_of_distribution": prediction.is_out_of_distribution,
        "price_weight": prediction.price_weight,
        "request_id": given.request_id,
        "experts": list(prediction.experts),
        "ranking": ranking,
    }


def _show(prediction: RoutedInput) -> None:
    scores, dollars = prediction.scores, prediction.dollars
    rows = [
        [
            prediction.experts[place],
            "" if scores is None else f"{scores[place]:.3f}",
            "" if dollars is None else f"{1000 * dollars[place]:.4g}",
            f"{prediction.probabilities[place]:.1%}",
        ]
        for place in prediction.ranking
    ]
    print_table("", ["expert", "expected score", "expected $ per 1,000", "probability"], rows)
    typer.echo(_why(prediction))
    typer.echo(prediction.name)


def _why(prediction: RoutedInput) -> str:
    """One sentence on why this expert."""
    name = prediction.name
    if prediction.reason == "out_of_distribution":
        return (
            "the text is unlike the training data, so the best single expert at this price stands"
            f" in: {name}."
        )
    if prediction.reason == "single":
        return f"the operating point sends every request to {name}."
    if prediction.reason == "split":
        chances = [
            (prediction.experts[place], chance)
            for place, chance in enumerate(prediction.probabilities)
            if chance > 0
        ]
        sides = " and ".join(
            f"{expert} ({chance:.0%})"
            for expert, chance in sorted(chances, key=lambda pair: -pair[1])
        )
        return (
            f"the operating point mixes two: a coin, the same for the same request, chose {name}"
            f" between {sides}."
        )
    return f"the router expects the most of {name} here{_beside(prediction)}."


def _beside(prediction: RoutedInput) -> str:
    """Score and dollars beside those of the expert of the highest expected score."""
    scores, dollars = prediction.scores, prediction.dollars
    if scores is None:
        return ""
    best = max(range(len(scores)), key=scores.__getitem__)
    if best == prediction.expert:
        return f": the highest expected score, {scores[best]:.3f}"
    less = (
        ""
        if dollars is None
        else (
            f" for ${1000 * dollars[prediction.expert]:.4g} instead of ${1000 * dollars[best]:.4g}"
            " per 1,000"
        )
    )
    return (
        f": expected score {scores[prediction.expert]:.3f}, beside {scores[best]:.3f} of"
        f" {prediction.experts[best]},{less}".rstrip(",")
    )


def _lines(path: Path) -> list[_Input]:
    try:
        # Only a line feed ends a line: JSON may hold other separators.
        lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{str(path)!r} must be a readable text file, got: {error}.") from error
    for place, line in enumerate(lines, 1):
        if not line.strip():
            raise ArgumentError(
                f"every line must be an input, got an empty line {place} of {str(path)!r};"
                " remove it."
            )
    if path.suffix in _JSON:
        return [_asked_in(line, place) for place, line in enumerate(lines, 1)]
    return [_Input(line.rstrip("\r"), None) for line in lines]


def _asked_in(line: str, place: int) -> _Input:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ArgumentError(f"line {place} must be JSON, got: {error}.") from error
    value = entry.get("input", entry.get("text")) if isinstance(entry, dict) else entry
    if not isinstance(value, str):
        raise ArgumentError(
            f"line {place} must have a text under 'input' or 'text', got {value!r:.80}."
        )
    given = (
        (entry.get("id") if entry.get("request_id") is None else entry["request_id"])
        if isinstance(entry, dict)
        else None
    )
    if not (given is None or isinstance(given, str | int)) or isinstance(given, bool):
        raise ArgumentError(
            f"line {place} must have a text or a whole number under 'request_id' or 'id', got"
            f" {given!r:.80}."
        )
    # An empty id is none, as at the gateway.
    return _Input(value, None if given is None else str(given) or None)
