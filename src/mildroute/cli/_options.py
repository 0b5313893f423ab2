"""Options that several commands share, and dataclasses that group them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

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
    typer.Option(
        "--input", help="Column that holds the texts; inferred by default.", metavar="COLUMN"
    ),
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
    typer.Option("--price-unit", help="Token unit of --prices: 1M, 1K or token."),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
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
    typer.Option("--output-tokens", help="Tokens per answer, if the table has no counts.", min=0),
]
Missing: TypeAlias = Annotated[
    str,
    typer.Option(
        "--missing",
        help=(
            "How to treat missing scores: raise an error, count them as zero, drop the row or, in"
            " fit, keep the row and estimate the score of the expert that was not asked."
        ),
    ),
]
Budget: TypeAlias = Annotated[
    float | None,
    typer.Option("--budget", help="Maximum dollars per 1,000 queries.", min=0),
]
Quality: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--quality",
        help="Minimum share of the best single expert's score, such as 0.95.",
        min=0,
    ),
]
PriceWeight: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--price-weight", help="Exchange rate between quality and cost: errors per dollar.", min=0
    ),
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
    int, typer.Option("--seed", help="Seed for splits, folds and clustering.", min=0, max=2**32 - 1)
]
By: TypeAlias = Annotated[
    str,
    typer.Option(
        "--by",
        help=(
            "How to split: random, group, time, column (the 'split' column holds train or test),"
            " or auto (column if the table has one, otherwise random)."
        ),
    ),
]
TestShare: TypeAlias = Annotated[
    float,
    typer.Option("--test", help="Share of the rows to hold out for testing.", min=0.01, max=0.9),
]


@dataclass(frozen=True)
class TargetOptions:
    """The target of an operating point: a budget, a quality or a price weight."""

    budget: Budget = None
    quality: Quality = None
    price_weight: PriceWeight = None

    @property
    def target(self) -> Target | None:
        """Return the given target, or ``None``."""
        return target_of(self.budget, self.quality, self.price_weight)


@dataclass(frozen=True)
class TableOptions:
    """Options for reading a cost table: prices, missing scores and columns."""

    prices: Prices = None
    price_unit: PriceUnit = None
    output_tokens: OutputTokens = None
    missing: Missing = "raise"
    input_column: InputColumn = None
    scores: ScoreColumns = None
    score_scale: ScoreScale = None

    @property
    def score_columns(self) -> dict[str, str] | list[str] | None:
        """Return each expert's column, or only the columns if no option names an expert.

        Example:
            >>> TableOptions(scores=["GPT=gpt-4o", "small"]).score_columns
            {'gpt-4o': 'GPT', 'small': 'small'}
        """
        if not self.scores:
            return None
        pairs = [text.rpartition("=") for text in self.scores]
        if not any(equals for _, equals, _ in pairs):
            return self.scores
        return {name: column if equals else name for column, equals, name in pairs}

    @property
    def scale(self) -> tuple[float, float] | None:
        """Return the worst and the best score, or ``None``.

        Example:
            >>> TableOptions(score_scale="0:100").scale
            (0.0, 100.0)
        """
        if self.score_scale is None:
            return None
        try:
            worst, best = (float(part) for part in self.score_scale.split(":"))
        except ValueError:
            raise ArgumentError(
                "--score-scale must be the worst and the best score, such as 0:100, got"
                f" {self.score_scale!r}."
            ) from None
        return worst, best

    def check_prices(self) -> None:
        """Raise an error if an option that needs --prices is given without it."""
        if self.prices is not None:
            return
        if self.output_tokens is not None:
            raise ArgumentError(
                f"--output-tokens {self.output_tokens:g} needs --prices to compute dollars; give"
                " both or neither."
            )
        if self.price_unit is not None:
            raise ArgumentError(
                f"--price-unit {self.price_unit} needs --prices; give both or neither."
            )


@dataclass(frozen=True)
class SplitOptions:
    """Options for splitting a table into training and test rows."""

    test: TestShare = 0.2
    by: By = "auto"


def target_of(
    budget: float | None, quality: float | None, price_weight: float | None
) -> Target | None:
    """Return the only given target, or ``None``.

    Example:
        >>> target_of(None, 0.95, None)
        Target(kind='quality', value=0.95)
    """
    from mildroute.routers.frontier.target import Target

    targets: dict[str, Target] = {}
    if budget is not None:
        targets["--budget"] = Target("budget", budget)
    if quality is not None:
        targets["--quality"] = Target("quality", quality)
    if price_weight is not None:
        targets["--price-weight"] = Target("price weight", price_weight)
    if len(targets) > 1:
        raise ArgumentError(
            f"give only one of --budget, --quality and --price-weight, got {' and '.join(targets)}."
        )
    return next(iter(targets.values()), None)
