"""A judge for multiple choice, which reads a letter from an answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.judges.options import ReferenceKind, parse_options, referenced_option
from mildroute.judges.stated_choice import read_choice

__all__ = ["MultipleChoiceJudge"]


@dataclass(frozen=True)
class MultipleChoiceJudge(ReadingJudge):
    """A judge that scores 1 if the answer states the letter that the reference means.

    The choices are in ``query.fields["choices"]``: a list of texts, a mapping from letters to
    texts, or the lists ``text`` and ``label``.

    Args:
        letters: Letters allowed as answers if the query has no choices.
        reference: Form of references: ``"letter"``, ``"index"``, ``"text"``, or ``"auto"``, which
            tries all of them and requires that they agree.
        first_index: Index of the first choice.
        name: The judge's name in tables.

    Example:
        >>> import asyncio
        >>> fields = {"choices": ["Rome", "Paris"]}
        >>> query = Query("q1", "The capital of France?", reference="B", fields=fields)
        >>> asyncio.run(MultipleChoiceJudge().judge(query, "The answer is (B)."))
        Verdict(score=1.0, reason='read B, expected B', dollars=0.0)
    """

    letters: str = "ABCDEFGHIJ"
    reference: ReferenceKind = "auto"
    first_index: int = 0
    name: str = "choice"

    def __post_init__(self) -> None:
        """Validate the settings."""
        if (
            not self.letters.isalpha()
            or not self.letters.isascii()
            or len(set(self.letters.upper())) < len(self.letters)
        ):
            raise ArgumentError(
                f"letters must be different letters such as 'ABCD', got {self.letters!r}."
            )
        if self.reference not in ("auto", "letter", "index", "text"):
            raise ArgumentError(
                f"reference must be 'auto', 'letter', 'index' or 'text', got {self.reference!r}."
            )

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the letter in the answer with the reference."""
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        options = parse_options(query.fields.get("choices"), self.letters)
        expected = self._expected(query, options)
        letter = read_choice(text, options)
        if letter is None:
            return Verdict(0.0, f"no single choice could be read, expected {expected}")
        return Verdict(float(letter == expected), f"read {letter}, expected {expected}")

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        try:
            options = parse_options(query.fields.get("choices"), self.letters)
        except ArgumentError as error:
            return str(error)
        expected = self._expected(query, options)
        if expected is None:
            return (
                f"the reference {reference[:40]!r} matches no choice or several; set reference to"
                " letter, index or text"
            )
        return ""

    def _expected(self, query: Query, options: Mapping[str, str]) -> str | None:
        return referenced_option(reference_of(query), options, self.reference, self.first_index)
