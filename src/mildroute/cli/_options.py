"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.exceptions import ArgumentError

if TYPE_CHECKING:
    from mildroute.routers.frontier.target import Target


Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Cost table: Parquet, CSV, TSV, Excel or JSON lines; a file, folder or URL.",
    ),
]
InputColumn: TypeAlias = Annotated[
    str | None,
    typer.Option("--input", help="Column of the texts; guessed by default.", metavar="COLUMN"),
]
ScoreColumns: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--score",
        help="Score column of an expert, optionally with another name; may be repeated.",
        metavar="COLUMN[=EXPERT]",
    ),
]
ScoreScale: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--score-scale",
        help="Worst and best score, such as 0:100, or 1:0 if lower is better.",
        metavar="WORST:BEST",
    ),
]
PriceUnit: TypeAlias = Annotated[
    str | None,
    typer.Option("--price-unit", help="Number of tokens that --prices are for: 1M, 1K or token."),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs instead of tables for people.")
]
Experts: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--experts",
        help="Keep only these experts: comma-separated names, which must not contain commas.",
    ),
]
Prices: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--prices",
        help=(
            "JSON or CSV with dollars per million tokens (expert, input, output); see --price-unit"
            " for other units."
        ),
    ),
]
OutputTokens: TypeAlias = Annotated[
    float | None,
    typer.Option("--output-tokens", help="Tokens of an answer, if the table has no counts.", min=0),
]
Missing: TypeAlias = Annotated[
    str,
    typer.Option(
        "--missing",
        help=(
            "Treatment of missing scores: raise an error, count them as zero, drop the row or, in"
            " fit, keep the row and estimate the score of the expert that was not asked."
        ),
    ),
]
Budget: TypeAlias = Annotated[
    float | None,
    typer.Option("--budget", help="At most this many dollars per 1,000 queries.", min=0),
]
Quality: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--quality",
        help="At least this share of the score of the best single expert by score, such as 0.95.",
        min=0,
    ),
]
PriceWeight: TypeAlias = Annotated[
    float | None,
    typer.Option("--price-weight", help="Number of errors that one dollar is worth.", min=0),
]
Encoder: TypeAlias = Annotated[
    str,
    typer.Option(
        "--encoder",
        help=(
            "auto, tfidf, tfidf-sparse, characters, hashing, numbers, minilm, minilm-int8, a"
            " plug-in, or the folder or hub name of a sentence model; + joins several."
        ),
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option("--seed", help="Seed of splits, folds and clusterings.", min=0, max=2**32 - 1)
]
By: TypeAlias = Annotated[
    str,
    typer.Option(
        "--by",
        help=(
            "How to split: random, group, time, column (the column 'split' holds train or test),"
            " or auto, which means column if there is one, else random."
        ),
    ),
]
TestShare: TypeAlias = Annotated[
    float, typer.Option("--test", help="Share of the rows to test on.", min=0.01, max=0.9)
]


def columns_of(
    input_column: str | None = None,
    scores: list[str] | None = None,
    score_scale: str | None = None,
) -> dict[str, Any]:
    """Return the options about columns as arguments of ``CostTable.read``.

    Example:
        >>> columns_of("Prompt", ["GPT=gpt-4o"], "0:100")["score_scale"]
        (0.0, 100.0)
    """
    found: dict[str, Any] = {"input": input_column}
    if scores:
        found["scores"] = _expert_columns(scores)
    if score_scale is not None:
        found["score_scale"] = _scale(score_scale)
    return {name: value for name, value in found.items() if value is not None}


def _expert_columns(scores: list[str]) -> Any:
    """Return the column of each expert, or the columns alone if no option names an expert."""
    pairs = [text.rpartition("=") for text in scores]
    if not any(between for _, between, _ in pairs):
        return scores
    return {name: column if between else name for column, between, name in pairs}


def _scale(text: str) -> tuple[float, float]:
    try:
        worst, best = (float(part) for part in text.split(":"))
    except ValueError:
        raise ArgumentError(
            f"--score-scale must be the worst and the best score, such as 0:100, got {text!r}."
        ) from None
    return worst, best


def target_of(
    budget: float | None, quality: float | None, price_weight: float | None
) -> Target | None:
    """Return the one target that was given; ``None`` without a target.

    Example:
        >>> target_of(None, 0.95, None)
        Target(kind='quality', value=0.95)
    """
    from mildroute.routers.frontier.target import Target

    given = {"budget": budget, "quality": quality, "price weight": price_weight}
    named = {name: value for name, value in given.items() if value is not None}
    if len(named) > 1:
        raise ArgumentError(
            "give one of --budget, --quality and --price-weight, got"
            f" {' and '.join('--' + name.replace(' ', '-') for name in named)}."
        )
    for name, value in named.items():
        return Target(name, value)  # type: ignore[arg-type]
    return None
