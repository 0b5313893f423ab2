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
        expert: Name of the expert: a model, with its effort or prompt variant if the log has
            several.
        score: Score in [0, 1], or `None` if the answer was not scored.
        dollars: Cost of the call in dollars, or `None`.
        latency: Duration of the call in seconds, or `None`.
        input_tokens: Number of prompt tokens, or `None`.
        output_tokens: Number of answer tokens, or `None`.
        answer: The answer as text, or `None`.
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
    """Outcomes with one row per prompt and sample.

    Attributes:
        columns: Columns of a cost table.
        experts: Names of the experts.
        notes: Notes on what was joined and what was left out.
    """

    columns: dict[str, list[Any]]
    experts: tuple[str, ...]
    notes: tuple[str, ...]


def join_outcomes(outcomes: Iterable[Outcome], *, keep_partial: bool = False) -> JoinedOutcomes:
    """Join outcomes on the prompt's text.

    An expert's repeated answers to a prompt are samples; all experts' first answers form one row,
    and their second answers another.

    Args:
        outcomes: Outcomes of at least two experts.
        keep_partial: Whether to keep prompts that some experts did not answer.

    Example:
        >>> outcomes = [Outcome("2+2?", "small", 0.0), Outcome("2+2?", "large", 1.0)]
        >>> join_outcomes(outcomes).columns
        {'query_id': ['0'], 'input': ['2+2?'], 'score:small': [0.0], 'score:large': [1.0]}
    """
    rows, experts, unscored = _collect_rows(outcomes)
    if len(experts) < 2:
        problem = f"only {experts[0]!r} has scores" if experts else "there are no scored answers"
        raise TableError(
            f"a table needs the scores of at least two experts, but {problem}; add the logs of"
            " other models."
        )
    partial = [key for key, cells in rows.items() if len(cells) < len(experts)]
    notes = [_summary(rows, experts)]
    if unscored:
        notes.append(f"left out {pluralize(unscored, 'answer')} without a score")
    if partial:
        rarest_expert = min(experts, key=lambda name: sum(name in cells for cells in rows.values()))
        count = sum(rarest_expert in cells for cells in rows.values())
        action = "kept" if keep_partial else "left out"
        notes.append(
            f"{action} {pluralize(len(partial), 'row')} that not every expert answered"
            f" ({rarest_expert!r} answered {count:,} of {len(rows):,})"
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


# Prompt and sample index of a row.
_Key = tuple[str, int]


def _collect_rows(
    outcomes: Iterable[Outcome],
) -> tuple[dict[_Key, dict[str, Outcome]], list[str], int]:
    """Return the outcomes by prompt and sample, the experts, and the number of unscored answers."""
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
    """Return a cost table's columns; fields that no outcome has are left out."""
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
    first_outcomes = [next(iter(cells.values())) for cells in rows.values()]
    for name in ("group", "reference"):
        values = [getattr(outcome, name) for outcome in first_outcomes]
        if any(value is not None for value in values):
            columns[name] = values
    for name, prefix in _PREFIXES.items():
        values_by_expert = {
            expert: [
                getattr(cells[expert], name) if expert in cells else None for cells in rows.values()
            ]
            for expert in experts
        }
        # A cost table has a field for all experts or for none. Tools write 0 for unknown prices.
        if name == "score" or all(any(each) for each in values_by_expert.values()):
            columns |= {prefix + expert: values for expert, values in values_by_expert.items()}
    return columns
