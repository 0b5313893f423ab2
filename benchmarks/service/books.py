"""Three books of the same requests, held against each other.

The clients', the gateway's decision log and the experts'.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from expert import text_of, tokens_of
from processes import PRICES
from traffic import Told, conversation_of

from mildroute.decision.conversation import named_conversation
from mildroute.decision.log import DecisionRecord, read_log


@dataclass
class Audit:
    """What does not agree; each with a few examples."""

    requests: int = 0
    good: int = 0
    broken_streams: int = 0
    retried: int = 0
    lines: int = 0
    looks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def blame(self, fault: str, example: object) -> None:
        self.faults[fault] += 1
        self.examples.setdefault(fault, str(example)[:300])


def dollars_of(expert: str, tokens: tuple[int, int]) -> float:
    """What an answer costs."""
    price_in, price_out = PRICES[expert]
    return (price_in * tokens[0] + price_out * tokens[1]) / 1e6


def audit(told: Iterable[Told], log: Path, answered: Mapping[str, Iterable[int]]) -> Audit:
    """Compare.

    Args:
        told: What clients saw.
        log: Folder of the decision log.
        answered: Numbers that each expert has answered to the end.
    """
    found, requests = Audit(), list(told)
    records = [record for record in read_log(log) if record.path != "route"]
    found.requests, found.lines = len(requests), len(records)
    found.looks = sum(record.selected not in PRICES for record in records)
    by_conversation: dict[str, list[DecisionRecord]] = {}
    for record in records:
        by_conversation.setdefault(record.conversation, []).append(record)
    for name, count in Counter(record.decision_id for record in records).items():
        if count > 1:
            found.blame("decision ids with two lines", name)
    wrote = {name: Counter(numbers) for name, numbers in answered.items()}
    for request in requests:
        _check_request(
            request,
            by_conversation.pop(
                named_conversation(conversation_of(request.number), request.key), []
            ),
            wrote,
            found,
        )
    for strays in by_conversation.values():
        found.blame("lines that belong to no request, or to another key", strays[0])
    _check_sums(requests, records, found)
    return found


def _check_request(
    told: Told, lines: list[DecisionRecord], wrote: Mapping[str, Counter[int]], found: Audit
) -> None:
    found.retried += told.retries > 0
    if len(lines) > 1:
        found.blame("requests that were decided twice", (told, lines))
    if not told.is_good:
        found.broken_streams += told.status == 200
        found.blame(f"failed: {told.status} {told.error[:60]}", told)
        if told.decision_id and not lines:
            found.blame("decisions without a line", told)
        return
    found.good += 1
    _check_answer(told, found)
    if not lines:
        found.blame("decisions without a line", told)
        return
    _check_line(told, lines[0], found)
    for expert in {told.expert, *_answers_of(lines[0])}:
        if not wrote[expert][told.number]:
            found.blame("answers that their expert did not give", (expert, told))


def _check_answer(told: Told, found: Audit) -> None:
    if told.text != text_of(told.expert, told.number):
        found.blame("answers to another question", told)
    if told.tokens != tokens_of(told.number):
        found.blame("answers with other tokens", told)


def _check_line(told: Told, line: DecisionRecord, found: Audit) -> None:
    pairs = {
        "decision id": (line.decision_id, told.decision_id),
        "key": (line.key, told.key),
        "expert": (line.served_by, told.expert),
        "status": (line.status, told.status),
        "tokens": ((line.tokens_in, line.tokens_out), told.tokens),
    }
    for name, (written, seen) in pairs.items():
        if written != seen:
            found.blame(f"lines with another {name}", (written, seen, told))
    if not math.isclose(line.cost_usd, _dollars_of_calls(told, line), rel_tol=1e-9):
        found.blame("lines with other dollars", (line.cost_usd, told))


def _answers_of(line: DecisionRecord) -> list[str]:
    """Experts that have answered: more than one if a cascade has looked at answers."""
    return [str(call["expert"]) for call in line.attempts if not call["reason"]]


def _dollars_of_calls(told: Told, line: DecisionRecord | None) -> float:
    """Of all answers to a request.

    A look is charged for calls that broke off as well, by what had come of them until then, which
    no other book has.
    """
    if line is None or line.selected in PRICES:
        return dollars_of(told.expert, told.tokens)
    broken = [float(call["cost_usd"]) for call in line.attempts if call["reason"]]
    answers = [dollars_of(expert, told.tokens) for expert in _answers_of(line)]
    return math.fsum(answers + broken)


def _check_sums(requests: list[Told], records: list[DecisionRecord], found: Audit) -> None:
    """Of each key, over requests that went well; others may have cost a part."""
    good = {request.decision_id for request in requests if request.is_good}
    lines = {record.decision_id: record for record in records}
    for key in {request.key for request in requests}:
        seen = math.fsum(
            _dollars_of_calls(each, lines.get(each.decision_id))
            for each in requests
            if each.is_good and each.key == key
        )
        written = math.fsum(
            record.cost_usd
            for record in records
            if record.key == key and record.decision_id in good
        )
        if not math.isclose(seen, written, rel_tol=1e-9, abs_tol=1e-12):
            found.blame("keys with another bill", (key, seen, written))


def charged(log: Path) -> dict[str, float]:
    """Dollars of each key in a log."""
    sums: dict[str, list[float]] = {}
    for record in read_log(log):
        sums.setdefault(record.key, []).append(record.cost_usd)
    return {key: math.fsum(values) for key, values in sums.items()}
