"""``mildroute route``: show which expert should answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from mildroute.cli._expand import expand_options
from mildroute.cli._options import AsJson, InputColumn, TargetOptions
from mildroute.cli._output import print_json, print_sentence, print_table, progress_bar
from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.fitting.routed_input import RoutedInput
    from mildroute.routers.frontier.target import Target

__all__ = ["route_inputs"]


_JSON = (".json", ".jsonl", ".ndjson")


class _Input(NamedTuple):
    """An input and the id that seeds its random split, or ``None``."""

    text: str
    request_id: str | None


_Text: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="Input to route; omit it with --file.")
]
_File: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help=(
            "File of inputs: one text per line, or a table (Parquet, CSV, TSV, Excel, JSON lines)"
            " with texts and optionally 'request_id' or 'id'."
        ),
    ),
]
_RequestId: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        help="Seed of the random split at a mixed operating point; defaults to the text.",
    ),
]


@expand_options
def route_inputs(
    folder: Annotated[
        str, typer.Argument(metavar="ROUTER", help="Folder or URL of a stored router.")
    ],
    target: TargetOptions,
    text: _Text = None,
    file: _File = None,
    input_column: InputColumn = None,
    request_id: _RequestId = None,
    as_json: AsJson = False,
) -> None:
    """Show which expert a stored ROUTER chooses for a TEXT; the gateway makes the same choice.

    A budget, quality or price weight selects an operating point other than the stored one.

    Example: mildroute route router "Prove that there are infinitely many primes."
    """
    from mildroute.persistence.artifact import load_router

    if (text is None) == (file is None):
        raise ArgumentError("give either a TEXT or --file.")
    if file is not None and request_id is not None:
        raise ArgumentError(
            f"--request-id needs a TEXT, got --file {str(file)!r}; add a 'request_id' to each line"
            " or row of the file."
        )
    if file is None and input_column is not None:
        raise ArgumentError(f"--input {input_column} names a column of --file; give both.")
    inputs = (
        _inputs(file, input_column)
        if file is not None
        else [_Input(text or "", request_id or None)]
    )
    with progress_bar("route") as progress:
        progress(0, 1, f"{len(inputs):,} inputs")
        predictions = _predictions(load_router(folder), inputs, target.target)
    if file is not None:
        for each, prediction in zip(inputs, predictions, strict=True):
            typer.echo(json.dumps(_as_dict(each, prediction), ensure_ascii=False))
    elif as_json:
        print_json(_as_dict(inputs[0], predictions[0]))
    else:
        _show(predictions[0])


def _predictions(router: Any, inputs: list[_Input], target: Target | None) -> list[RoutedInput]:
    from mildroute.fitting.targets import point_of
    from mildroute.fitting.text_router import TextRouter

    if not isinstance(router, TextRouter):
        raise ArgumentError(
            f"this router ({type(router).__name__}) reads vectors, not texts; fit one with"
            " mildroute fit."
        )
    ids = [each.text if each.request_id is None else each.request_id for each in inputs]
    return router.explain(
        [each.text for each in inputs], point=point_of(router, target), request_ids=ids
    )


def _as_dict(routed: _Input, prediction: RoutedInput) -> dict[str, Any]:
    """Return a prediction as JSON, with the values of each expert in the ranking."""
    ranking = [
        {
            "expert": prediction.experts[index],
            "probability": round(prediction.probabilities[index], 6),
            "posterior": round(prediction.posterior[index], 6),
            "score": None if prediction.scores is None else round(prediction.scores[index], 6),
            "dollars": (
                None if prediction.dollars is None else float(f"{prediction.dollars[index]:.6g}")
            ),
        }
        for index in prediction.ranking
    ]
    return {
        "expert": prediction.name,
        "reason": prediction.reason,
        "why": prediction.why,
        "is_out_of_distribution": prediction.is_out_of_distribution,
        "price_weight": prediction.price_weight,
        "request_id": routed.request_id,
        "experts": list(prediction.experts),
        "ranking": ranking,
    }


def _show(prediction: RoutedInput) -> None:
    from mildroute._format import format_number

    scores, dollars = prediction.scores, prediction.dollars
    rows = [
        [
            prediction.experts[index],
            "" if scores is None else f"{scores[index]:.3f}",
            "" if dollars is None else format_number(1000 * dollars[index], "{:.4g}"),
            f"{prediction.probabilities[index]:.1%}",
        ]
        for index in prediction.ranking
    ]
    print_table("", ["expert", "expected score", "expected $ per 1,000", "probability"], rows)
    print_sentence(prediction.why)
    typer.echo(prediction.name)


def _inputs(path: Path, column: str | None) -> list[_Input]:
    from mildroute.costs.files import SUFFIXES

    kind = SUFFIXES.get(path.suffix.lower(), "text")
    if kind == "text" and column is not None:
        raise ArgumentError(
            f"--input needs a table, got the text file {str(path)!r}; leave --input out."
        )
    is_table = kind not in ("text", "json") or column is not None
    return _rows(path, column) if is_table else _lines(path)


def _rows(path: Path, column: str | None) -> list[_Input]:
    from mildroute.costs.columns import find_input
    from mildroute.costs.conversion import as_text
    from mildroute.costs.files import resolve_files
    from mildroute.costs.readers import read_whole

    table = read_whole(resolve_files(path))
    name = find_input(table, column)
    texts = as_text(table.column(name), name, whole_numbers=False).to_pylist()
    for row, text in enumerate(texts):
        if not (text or "").strip():
            raise ArgumentError(
                f"every row must have a text, got none in column {name!r}, row {row}, of"
                f" {str(path)!r}; remove it."
            )
    id_columns = [key for key in ("request_id", "id") if key in table.column_names]
    ids = [None] * len(texts)
    if id_columns:
        ids = as_text(table.column(id_columns[0]), id_columns[0]).to_pylist()
    return [_Input(text, request_id or None) for text, request_id in zip(texts, ids, strict=True)]


def _lines(path: Path) -> list[_Input]:
    try:
        # Only a line feed ends a line, because JSON may contain other separators.
        lines = path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{str(path)!r} must be a readable text file, got: {error}.") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise ArgumentError(
                f"every line must be an input, got an empty line {number} of {str(path)!r};"
                " remove it."
            )
    if path.suffix in _JSON:
        return [_input_in(line, number) for number, line in enumerate(lines, 1)]
    return [_Input(line.rstrip("\r"), None) for line in lines]


def _input_in(line: str, number: int) -> _Input:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise ArgumentError(f"line {number} must be JSON, got: {error}.") from error
    value = entry.get("input", entry.get("text")) if isinstance(entry, dict) else entry
    if not isinstance(value, str):
        raise ArgumentError(
            f"line {number} must have a text under 'input' or 'text', got {value!r:.80}."
        )
    request_id = (
        (entry.get("id") if entry.get("request_id") is None else entry["request_id"])
        if isinstance(entry, dict)
        else None
    )
    if not (request_id is None or isinstance(request_id, str | int)) or isinstance(
        request_id, bool
    ):
        raise ArgumentError(
            f"line {number} must have a text or a whole number under 'request_id' or 'id', got"
            f" {request_id!r:.80}."
        )
    # An empty id counts as no id, as in the gateway.
    return _Input(value, None if request_id is None else str(request_id) or None)
