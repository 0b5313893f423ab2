"""What earlier attempts at a block have left: a worker that died has written down all that was answered, judged and asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mildroute.collecting.archive import Known, Row, dollars_in, rows_by_kind, unanswered_in
from mildroute.collecting.entries import ANSWERS, VERDICTS
from mildroute.collecting.runner import Cell
from mildroute.collecting.tally import Tally
from mildroute.experts.protocol import Query

__all__ = ["Remains", "journal_name", "journals_of", "remains_in"]


def journals_of(block: Path, journals: Path) -> list[Path]:
    """The journals of all attempts at a block, oldest first.

    Example:
        >>> journals_of(Path("work/17/000-000001.parquet"), Path("no/such/folder"))
        []
    """
    return sorted(journals.glob(f"{journal_name(block)}-*.jsonl"))


def journal_name(block: Path) -> str:
    """Beginning of the names of a block's journals: they sort by the run, whose folder is named after its time.

    Example:
        >>> journal_name(Path("work/17/000-000001.parquet"))
        '17-000-000001'
    """
    return f"{block.parent.name}-{block.stem}"


@dataclass
class Remains:
    """Entries of dead attempts at one block.

    Args:
        answers: The last answer to each query, by its digest; one with a text stands against later errors.
        verdicts: The last verdict on each.
        dollars: All that the attempts were charged, or may have been.
        paid: What their answers and verdicts cost.
        calls: Calls that they made.

    Example:
        >>> Remains().dollars
        0.0
    """

    answers: dict[str, Row] = field(default_factory=dict)
    verdicts: dict[str, Row] = field(default_factory=dict)
    dollars: float = 0.0
    paid: float = 0.0
    calls: int = 0

    def is_settled(self, digest: str) -> bool:
        """Whether this run is done with a cell: it has a verdict, or an error, which a later run asks again."""
        return digest in self.verdicts or bool(digest in self.answers and self.answers[digest]["error"])

    def left(self, cells: Iterable[Cell], expert: str) -> tuple[list[Query], Known]:
        """The queries of the cells that are still to do, and what is known of them."""
        queries, known = [], Known((expert,))
        for cell in cells:
            if self.is_settled(cell.digest):
                continue
            queries.append(cell.query)
            text = self.answers[cell.digest]["text"] if cell.digest in self.answers else cell.text
            if text is not None:
                known.answered[expert].add(cell.digest)
                known.texts[expert, cell.digest] = text
        return queries, known

    def tally(self, cells: Iterable[Cell], expert: str) -> Tally:
        """What the dead attempts count for."""
        scores = [self.verdicts.get(cell.digest, {}).get("score") for cell in cells if self.is_settled(cell.digest)]
        told = [score for score in scores if score is not None]
        errors = len(scores) - len(told)
        return Tally(expert, done=len(scores), errors=errors, score=sum(told, 0.0), dollars=self.paid, calls=self.calls)


def remains_in(journals: Sequence[Path]) -> Remains:
    """Read the journals of dead attempts.

    Args:
        journals: Their files, oldest first.

    Returns:
        What they hold.

    Example:
        >>> remains_in([]).calls
        0
    """
    found = Remains()
    for path in journals:
        rows = rows_by_kind(path)
        answers, verdicts = rows.get(ANSWERS, []), rows.get(VERDICTS, [])
        found.verdicts |= {row["query"]: row for row in verdicts}
        for row in answers:
            if not row["error"] or row["query"] not in found.answers:
                found.answers[row["query"]] = row
        paid = dollars_in(answers, verdicts, [])
        found.paid += paid
        found.dollars += paid + dollars_in([], [], unanswered_in(rows))
        found.calls += sum(row["attempts"] for row in answers)
    return found
