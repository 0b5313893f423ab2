"""Classification: which of a set of labels an answer gives."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_extraction import ANSWER_WORDS, NO, WORD, Mention, stated_option
from mildroute.judges._latex import unfold_latex
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.text import drop_emphasis, drop_thinking, normalize_text

__all__ = ["LabelJudge", "label_meant", "labels_of", "read_label"]


Labels = Mapping[str, Sequence[str]]

_WORDS = (
    rf"{ANSWER_WORDS}|label|class(?:ification)?|category|sentiment|intent|topic|prediction|rating|verdict|emotion|relationship|relation"
    r"|tone|polarity|stance"
)
_SHORT = 300
_SEPARATOR = re.compile(r"[\s_/-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_ID = re.compile(r"(?<![\w.,$+/-])\d{1,3}(?![\w%/]|[.,]\d)")


def labels_of(labels: Any) -> dict[str, tuple[str, ...]]:
    """Each label with its synonyms.

    Args:
        labels: A list of names, a mapping from names to their synonyms, or either as JSON.
    """
    if isinstance(labels, str):
        try:
            labels = json.loads(labels)
        except (ValueError, RecursionError) as broken:
            raise ArgumentError(
                f"labels must be a list, a mapping or either as JSON, got {labels[:60]!r}; write"
                " them as JSON."
            ) from broken
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    if isinstance(labels, Mapping):
        named = {
            str(name): (others,) if isinstance(others, str) else tuple(map(str, others))
            for name, others in labels.items()
        }
    elif isinstance(labels, (list, tuple)):
        named = {str(name): () for name in labels}
    else:
        raise ArgumentError(
            "labels must be a list of names or a mapping from names to synonyms, got"
            f" {str(labels)[:60]!r}."
        )
    forms = [_squashed(form) for name, others in named.items() for form in {name, *others}]
    if not forms or not all(forms) or len(set(forms)) < len(forms) or len(named) < len(labels):
        raise ArgumentError(
            "labels and synonyms must be different words, one label or more, got"
            f" {str(labels)[:60]!r}; drop blanks and repeats."
        )
    return named


def label_meant(reference: str, labels: Labels) -> str | None:
    """The label that a reference means.

    The reference may be its name, a synonym, or its index from 0 if no label is a number.
    """
    sought = _squashed(reference)
    for name, others in labels.items():
        if sought in {_squashed(name), *map(_squashed, others)}:
            return name
    is_id = _has_ids(labels) and re.fullmatch(r"\d{1,3}", sought) and int(sought) < len(labels)
    return list(labels)[int(sought)] if is_id else None


def read_label(text: str, labels: Labels) -> str | None:
    """The label that an answer gives, or none if it gives none or several.

    Args:
        text: What the expert wrote.
        labels: Each label with its synonyms, as :func:`labels_of` gives them.

    Returns:
        A label. The longest one counts ("very positive" is not "positive"), a negated one does not
        ("not positive"), and the label is not inferred from a negation. Indices count only if no
        label is named. ``4/5`` is not a label.

    Example:
        >>> labels = {"negative": (), "positive": (), "very positive": ()}
        >>> answers = ["Sentiment: **Very Positive**", "It is not positive.", "1"]
        >>> tuple(read_label(answer, labels) for answer in answers)
        ('very positive', None, 'positive')
    """
    text = _SPACED.sub(" ", drop_emphasis(unfold_latex(normalize_text(drop_thinking(text)))))
    pattern, owners = _pattern(tuple((name, tuple(others)) for name, others in labels.items()))
    named = [
        Mention(found.start(), found.end(), *owners[(found.lastindex or 1) - 1])
        for found in pattern.finditer(text)
    ]
    if named or not _has_ids(labels):
        return stated_option(text, named, _WORDS, short=_SHORT)
    names = list(labels)
    ids = [(found, int(found[0])) for found in _ID.finditer(text)]
    numbers = [
        Mention(found.start(), found.end(), names[at], at, letter=True, bare=True)
        for found, at in ids
        if at < len(names)
    ]
    return stated_option(text, numbers, _WORDS)


_SPACED = re.compile(r"(?<=\w)_|_(?=\w)")


@dataclass(frozen=True)
class LabelJudge(ReadingJudge):
    """Right if the answer gives the label that the reference means.

    Args:
        labels: A list of names, or a mapping from names to synonyms; ``query.fields["labels"]``
            takes precedence.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> judge = LabelJudge(["negative", "positive"])
        >>> query = Query("q1", "Great film!", reference="positive")
        >>> asyncio.run(judge.judge(query, "The sentiment is positive.")).score
        1.0
    """

    labels: Mapping[str, Sequence[str]] | Sequence[str] = ()
    name: str = "label"

    def __post_init__(self) -> None:
        """Check the labels."""
        if self.labels:
            labels_of(self.labels)

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the label that is read with the reference."""
        if lack := self.missing_fields(query):
            return Verdict(None, lack)
        labels = labels_of(query.fields.get("labels", self.labels))
        expected = label_meant(reference_of(query), labels)
        read = read_label(text, labels)
        if read is None:
            return Verdict(0.0, f"no single label could be read, expected {expected!r}")
        return Verdict(float(read == expected), f"read {read!r}, expected {expected!r}")

    def missing_fields(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        if "labels" not in query.fields and not self.labels:
            return "there are no labels; set labels, or give the query a field 'labels'"
        try:
            labels = labels_of(query.fields.get("labels", self.labels))
        except ArgumentError as broken:
            return str(broken)
        return (
            f"the reference {reference[:40]!r} is none of the labels"
            if label_meant(reference, labels) is None
            else ""
        )


def _squashed(text: str) -> str:
    return re.sub(rf"(?<=\w){_SEPARATOR.pattern}(?=\w)", "", normalize_text(text).casefold())


def _has_ids(labels: Labels) -> bool:
    return not any(
        _squashed(form).lstrip("+-").isdigit()
        for name, others in labels.items()
        for form in (name, *others)
    )


@functools.lru_cache(maxsize=64)
def _pattern(
    labels: tuple[tuple[str, tuple[str, ...]], ...],
) -> tuple[re.Pattern[str], tuple[tuple[str, int], ...]]:
    """All names and synonyms, longest first, and the label and rank that each belongs to."""
    forms = [
        (normalize_text(form), name, rank)
        for rank, (name, others) in enumerate(labels)
        for form in (name, *others)
    ]
    forms.sort(key=lambda entry: -len(entry[0]))
    pattern = "|".join(f"({_spelled(form)})" for form, _, _ in forms)
    return re.compile(pattern, re.IGNORECASE), tuple((name, rank) for _, name, rank in forms)


def _spelled(form: str) -> str:
    """The form as a pattern.

    Words with or without spaces, underscores, slashes or hyphens between them.
    """
    words = [
        re.escape(word) for part in _SEPARATOR.split(form) for word in _CAMEL.split(part) if word
    ]
    if form.casefold() == "no":
        return NO
    if re.fullmatch(r"[+-]?\d+", form):
        return rf"(?<![\w.,$+/-]){re.escape(form)}(?![\w%/]|[.,]\d)"
    before = r"(?<![\w.,$+/-])" if form[0].isdigit() else f"(?<![{WORD}])"
    after = r"(?![\w%/]|[.,]\d)" if form[-1].isdigit() else f"(?![{WORD}+#])"
    return before + r"[\s_/-]*".join(words) + after
