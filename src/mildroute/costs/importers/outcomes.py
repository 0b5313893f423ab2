"""Outcomes of experts on prompts, joined into a cost table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute._format import pluralize
from mildroute.exceptions import TableError

__all__ = ["JoinedOutcomes", "Outcome", "join_outcomes"]

_PREFIXES = {
    "score": "score:",
    "dollars": "cost:",
    "latency": "latency:",
    "input_tokens": "intokens:",
    "output_tokens": "outtokens:",
    "answer": "answer:",
}


@dataclass(frozen=True)
class Outcome:
    """The outcome of one expert's answer to one prompt.

    Attributes:
        input: The prompt as text.
        expert: Name of the expert: a model, with its effort or prompt variant if these differ.
        score: Score in [0, 1], or `None` if the answer was not scored.
        dollars: Dollars of the call, or `None`.
        latency: Seconds of the call, or `None`.
        input_tokens: Tokens of the prompt, or `None`.
        output_tokens: Tokens of the answer, or `None`.
        answer: Text of the answer, or `None`.
        group: Task or data set, or `None`.
        reference: Expected answer, or `None`.
    """

    input: str
    expert: str
    score: float | None
    dollars: float | None = None
    latency: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None
    answer: str | None = None
    group: str | None = None
    reference: str | None = None


@dataclass(frozen=True)
class JoinedOutcomes:
    """Outcomes with one row for each prompt and sample.

    Attributes:
        columns: Columns of a cost table.
        experts: Names of the experts.
        notes: Sentences on what was joined and what was left out.
    """

    columns: dict[str, list[Any]]
    experts: tuple[str, ...]
    notes: tuple[str, ...]


def join_outcomes(outcomes: Iterable[Outcome], *, keep_partial: bool = False) -> JoinedOutcomes:
    """Join outcomes on the text of the prompt.

    Repeated answers of an expert to one prompt are samples; the first answers of all experts make
    one row, the second ones another.

    Args:
        outcomes: Outcomes of at least two experts.
        keep_partial: Whether to keep prompts that not all experts answered.

    Example:
        >>> outcomes = [Outcome("2+2?", "small", 0.0), Outcome("2+2?", "large", 1.0)]
        >>> join_outcomes(outcomes).columns
        {'query_id': ['0'], 'input': ['2+2?'], 'score:small': [0.0], 'score:large': [1.0]}
    """
    rows, experts, unscored = _collect_rows(outcomes)
    if len(experts) < 2:
        only = f"the only one is {experts[0]!r}" if experts else "there are no scored answers"
        raise TableError(
            f"a table needs the scores of at least two experts, but {only}; give the logs of"
            " other models as well."
        )
    partial = [key for key, cells in rows.items() if len(cells) < len(experts)]
    notes = [_summary(rows, experts)]
    if unscored:
        notes.append(f"{pluralize(unscored, 'answer')} without a score left out")
    if partial:
        fewest = min(experts, key=lambda name: sum(name in cells for cells in rows.values()))
        count = sum(fewest in cells for cells in rows.values())
        action = "kept with missing scores" if keep_partial else "left out"
        notes.append(
            f"{pluralize(len(partial), 'row')} not answered by every expert {action}"
            f" ({fewest!r} answered {count:,} of {len(rows):,})"
        )
        if not keep_partial:
            for key in partial:
                del rows[key]
    if not rows:
        raise TableError(
            "no prompt was answered by every expert; check that the logs hold the same prompts, or"
            " keep prompts with missing scores (--keep-partial)."
        )
    return JoinedOutcomes(_to_columns(rows, experts), tuple(experts), tuple(notes))


# Prompt and sample of a row.
_Key = tuple[str, int]


def _collect_rows(
    outcomes: Iterable[Outcome],
) -> tuple[dict[_Key, dict[str, Outcome]], list[str], int]:
    """Return the outcomes of each prompt and sample, the experts, and the number without score."""
    rows: dict[_Key, dict[str, Outcome]] = defaultdict(dict)
    answers: Counter[tuple[str, str]] = Counter()
    experts: dict[str, None] = {}
    unscored = 0
    for outcome in outcomes:
        cell = (outcome.input, outcome.expert)
        sample = answers[cell]
        answers[cell] += 1
        if outcome.score is None:
            unscored += 1
            continue
        experts[outcome.expert] = None
        rows[outcome.input, sample][outcome.expert] = outcome
    return dict(rows), list(experts), unscored


def _summary(rows: dict[_Key, dict[str, Outcome]], experts: Sequence[str]) -> str:
    prompts = len({prompt for prompt, _ in rows})
    samples = "" if prompts == len(rows) else f" in {len(rows):,} samples"
    return f"{pluralize(prompts, 'prompt')}{samples}, {len(experts)} experts: {', '.join(experts)}"


def _to_columns(
    rows: dict[_Key, dict[str, Outcome]], experts: Sequence[str]
) -> dict[str, list[Any]]:
    """Return the columns of a cost table; values that no outcome has make no column."""
    numbers = {
        prompt: number for number, prompt in enumerate(dict.fromkeys(prompt for prompt, _ in rows))
    }
    has_samples = len(numbers) < len(rows)
    columns: dict[str, list[Any]] = {
        "query_id": [
            f"{numbers[prompt]}#{sample}" if has_samples else str(numbers[prompt])
            for prompt, sample in rows
        ],
        "input": [prompt for prompt, _ in rows],
    }
    firsts = [next(iter(cells.values())) for cells in rows.values()]
    for name in ("group", "reference"):
        values = [getattr(outcome, name) for outcome in firsts]
        if any(value is not None for value in values):
            columns[name] = values
    for name, prefix in _PREFIXES.items():
        per_expert = {
            expert: [
                getattr(cells[expert], name) if expert in cells else None for cells in rows.values()
            ]
            for expert in experts
        }
        # A cost table has a figure of all experts or of none. Tools write 0 for unknown prices.
        if name == "score" or all(any(each) for each in per_expert.values()):
            columns |= {prefix + expert: values for expert, values in per_expert.items()}
    return columns
