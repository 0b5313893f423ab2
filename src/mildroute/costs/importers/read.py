"""The reader of evaluation logs as a cost table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mildroute.costs.importers.columns import extract_row
from mildroute.costs.importers.helm import HELM
from mildroute.costs.importers.inspect_ai import INSPECT
from mildroute.costs.importers.lm_eval import LM_EVAL
from mildroute.costs.importers.log_format import LogFormat, to_score
from mildroute.costs.importers.openai_evals import OPENAI_EVALS
from mildroute.costs.importers.outcomes import Outcome, join_outcomes
from mildroute.costs.importers.promptfoo import PROMPTFOO
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["FORMATS", "read_eval_logs"]

FORMATS: Mapping[str, LogFormat] = {
    each.name: each for each in (PROMPTFOO, LM_EVAL, INSPECT, HELM, OPENAI_EVALS)
}


def read_eval_logs(
    sources: str | Path | Sequence[str | Path],
    *,
    format: str | None = None,  # noqa: A002
    metric: str | None = None,
    experts: Mapping[str, str] | None = None,
    prices: Any = None,
    keep_partial: bool = False,
) -> CostTable:
    """Read evaluation tools' logs as a cost table.

    Prompts are joined by their text. Repeated answers to a prompt are samples, one row each.

    Args:
        sources: Log files and folders, in any of the formats.
        format: Log format: 'promptfoo', 'lm-eval', 'inspect_ai', 'helm' or 'openai-evals';
            recognized by default.
        metric: Name of the score to use; required if the logs hold several.
        experts: New expert names, by the names in the logs.
        prices: The experts' prices, as for :meth:`CostTable.with_prices`, for logs without dollars.
        keep_partial: Whether to keep prompts that some experts did not answer.

    Returns:
        The table; its ``notes`` describe the outcomes that were joined and left out.

    Example:
        >>> read_eval_logs("no/such/results.json")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: 'no/such/results.json' does not exist; check the path.
    """
    paths = [Path(each) for each in ([sources] if isinstance(sources, (str, Path)) else sources)]
    if not paths:
        raise ArgumentError("name at least one log.")
    outcomes = [outcome for path in paths for outcome in _outcomes(path, format, metric)]
    new_names = experts or {}
    unknown = sorted(new_names.keys() - {outcome.expert for outcome in outcomes})
    if unknown:
        names = ", ".join(sorted({outcome.expert for outcome in outcomes}))
        raise ArgumentError(f"no expert is named {unknown[0]!r} in these logs; they hold: {names}.")
    joined = join_outcomes(
        (replace(each, expert=new_names.get(each.expert, each.expert)) for each in outcomes),
        keep_partial=keep_partial,
    )
    table = CostTable.from_data(
        joined.columns,
        missing="keep" if keep_partial else "raise",
        answers=f"answer:{joined.experts[0]}" in joined.columns,
    )
    if prices is not None:
        table = table.with_prices(prices)
    notes = joined.notes
    if table.dollars is None:
        notes += ("no dollars for all experts; give prices per million tokens",)
    return replace(table, notes=notes)


def _outcomes(path: Path, name: str | None, metric: str | None) -> Iterator[Outcome]:
    if not path.exists():
        raise TableError(f"{str(path)!r} does not exist; check the path.")
    log_format = _format_of(path, name)
    try:
        yield from _read_outcomes(path, log_format, metric)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # Other programs write these logs: a value of another type can be anywhere in them.
        raise TableError(
            f"{str(path)!r} is not structured like the logs of {log_format.name} ({error}); check"
            " the file, or name another format (--format)."
        ) from error


def _read_outcomes(path: Path, log_format: LogFormat, metric: str | None) -> Iterator[Outcome]:
    for number, record in enumerate(log_format.records(path)):
        location = f"{str(path)!r}, record {number}"
        row = extract_row(record, log_format.columns, location)
        variant = row.pop("variant", None)
        error = row.pop("error", None)
        scores = {} if error else log_format.metrics(record)
        row["expert"] = f"{row['expert']} {variant}" if variant else str(row["expert"])
        yield Outcome(**row, score=_score(scores, metric, location))


def _format_of(path: Path, name: str | None) -> LogFormat:
    if name is not None:
        if name not in FORMATS:
            raise ArgumentError(f"format must be one of {', '.join(FORMATS)}, got {name!r}.")
        return FORMATS[name]
    match = next((each for each in FORMATS.values() if each.matches(path)), None)
    if match is None:
        raise TableError(
            f"{str(path)!r} is not a log of {', '.join(FORMATS)}; if it is, name its format"
            " (--format). Tables with a column for each expert need no import."
        )
    return match


def _score(scores: Mapping[str, Any], metric: str | None, location: str) -> float | None:
    """Return an answer's score, or `None` if it was not scored."""
    if not scores:
        return None
    if metric is None:
        graded = {name: score for name, score in scores.items() if to_score(score) is not None}
        if len(graded) > 1:
            raise ArgumentError(
                f"{location} has several scores: {', '.join(graded)}; choose one as the metric"
                " (--metric)."
            )
        value = next(iter(graded.values()), None)
    elif metric not in scores:
        raise ArgumentError(
            f"{location} has no score {metric!r}, but {', '.join(scores)}; choose one of these"
            " (--metric)."
        )
    else:
        value = scores[metric]
    score = to_score(value)
    if score is not None and not 0 <= score <= 1:
        raise TableError(
            f"{location}: score {score:g} is not between 0 and 1; choose another metric (--metric)."
        )
    return score
