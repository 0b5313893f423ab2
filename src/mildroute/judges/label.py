"""A judge for classification, which reads a label from an answer."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._answer_markers import ANSWER_WORDS
from mildroute.judges._latex import unfold_latex
from mildroute.judges._option_mentions import NO, WORD, Mention
from mildroute.judges._stated_option import stated_option
from mildroute.judges.base import NO_REFERENCE, ReadingJudge, Verdict, reference_of
from mildroute.text import drop_emphasis, drop_thinking, normalize_text

__all__ = ["LabelJudge", "parse_labels", "read_label", "referenced_label"]

# Each label with its synonyms.
Labels = Mapping[str, Sequence[str]]

_WORDS = (
    rf"{ANSWER_WORDS}|label|class(?:ification)?|category|sentiment|intent|topic|prediction|rating|verdict|emotion|relationship|relation"
    r"|tone|polarity|stance"
)
_SHORT = 300
_SEPARATOR = re.compile(r"[\s_/-]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_INDEX = re.compile(r"(?<![\w.,$+/-])\d{1,3}(?![\w%/]|[.,]\d)")
_UNDERSCORE_IN_WORD = re.compile(r"(?<=\w)_|_(?=\w)")


def parse_labels(labels: Any) -> dict[str, tuple[str, ...]]:
    """Return each label with its synonyms.

    Args:
        labels: A list of names, a mapping from names to their synonyms, or either as JSON.
    """
    if isinstance(labels, str):
        try:
            labels = json.loads(labels)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(
                f"labels must be a list, a mapping or either as JSON, got {labels[:60]!r}; write"
                " them as JSON."
            ) from error
    labels = labels.tolist() if hasattr(labels, "tolist") else labels
    synonyms_by_name: dict[str, tuple[str, ...]]
    if isinstance(labels, Mapping):
        synonyms_by_name = {
            str(name): (synonyms,) if isinstance(synonyms, str) else tuple(map(str, synonyms))
            for name, synonyms in labels.items()
        }
    elif isinstance(labels, (list, tuple)):
        synonyms_by_name = {str(name): () for name in labels}
    else:
        raise ArgumentError(
            "labels must be a list of names or a mapping from names to synonyms, got"
            f" {str(labels)[:60]!r}."
        )
    forms = [
        _join_words(form)
        for name, synonyms in synonyms_by_name.items()
        for form in {name, *synonyms}
    ]
    are_different = len(set(forms)) == len(forms) and len(synonyms_by_name) == len(labels)
    if not forms or not all(forms) or not are_different:
        raise ArgumentError(
            "labels and synonyms must be different words, one label or more, got"
            f" {str(labels)[:60]!r}; drop blanks and repeats."
        )
    return synonyms_by_name


def referenced_label(reference: str, labels: Labels) -> str | None:
    """Return the label that a reference means, or ``None``.

    The reference may be the label's name or a synonym or, if no label is a number, its index
    from 0.
    """
    form = _join_words(reference)
    for name, synonyms in labels.items():
        if form in {_join_words(name), *map(_join_words, synonyms)}:
            return name
    if _allow_indices(labels) and re.fullmatch(r"\d{1,3}", form) and int(form) < len(labels):
        return list(labels)[int(form)]
    return None


def read_label(text: str, labels: Labels) -> str | None:
    """Return the label that an answer states, or ``None`` if it states none or several.

    The longest label counts ("very positive" is not "positive"). A negated label does not count
    ("not positive"), and no label is inferred from a negation. Indices count only if no label is
    named. ``4/5`` is not a label.

    Args:
        text: The expert's answer.
        labels: Each label with its synonyms, as returned by :func:`parse_labels`.

    Example:
        >>> labels = {"negative": (), "positive": (), "very positive": ()}
        >>> answers = ["Sentiment: **Very Positive**", "It is not positive.", "1"]
        >>> tuple(read_label(answer, labels) for answer in answers)
        ('very positive', None, 'positive')
    """
    text = drop_emphasis(unfold_latex(normalize_text(drop_thinking(text))))
    text = _UNDERSCORE_IN_WORD.sub(" ", text)
    pattern, owners = _label_pattern(
        tuple((name, tuple(synonyms)) for name, synonyms in labels.items())
    )
    mentions = [
        Mention(match.start(), match.end(), *owners[(match.lastindex or 1) - 1])
        for match in pattern.finditer(text)
    ]
    if mentions or not _allow_indices(labels):
        return stated_option(text, mentions, _WORDS, short=_SHORT)
    names = list(labels)
    indices = [(match, int(match[0])) for match in _INDEX.finditer(text)]
    mentions = [
        Mention(match.start(), match.end(), names[index], index, letter=True, bare=True)
        for match, index in indices
        if index < len(names)
    ]
    return stated_option(text, mentions, _WORDS)


@dataclass(frozen=True)
class LabelJudge(ReadingJudge):
    """A judge that scores 1 if the answer states the label that the reference means.

    Args:
        labels: A list of names, or a mapping from names to synonyms; ``query.fields["labels"]``
            takes precedence.
        name: The judge's name in tables.

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
        """Validate the labels."""
        if self.labels:
            parse_labels(self.labels)

    def score(self, query: Query, text: str) -> Verdict:
        """Compare the label in the answer with the reference."""
        if reason := self.missing_fields(query):
            return Verdict(None, reason)
        labels = parse_labels(query.fields.get("labels", self.labels))
        expected = referenced_label(reference_of(query), labels)
        label = read_label(text, labels)
        if label is None:
            return Verdict(0.0, f"no single label could be read, expected {expected!r}")
        return Verdict(float(label == expected), f"read {label!r}, expected {expected!r}")

    def missing_fields(self, query: Query) -> str:
        """Return the reason why a query's answers cannot be scored, or an empty text."""
        reference = reference_of(query)
        if not reference:
            return NO_REFERENCE
        if "labels" not in query.fields and not self.labels:
            return "there are no labels; set labels, or give the query a field 'labels'"
        try:
            labels = parse_labels(query.fields.get("labels", self.labels))
        except ArgumentError as error:
            return str(error)
        if referenced_label(reference, labels) is None:
            return f"the reference {reference[:40]!r} is not one of the labels"
        return ""


def _join_words(text: str) -> str:
    """Return a text in lowercase, without separators between its words."""
    return re.sub(rf"(?<=\w){_SEPARATOR.pattern}(?=\w)", "", normalize_text(text).casefold())


def _allow_indices(labels: Labels) -> bool:
    """Return whether numbers can be indices of labels, which requires that no label is a number."""
    return not any(
        _join_words(form).lstrip("+-").isdigit()
        for name, synonyms in labels.items()
        for form in (name, *synonyms)
    )


@functools.lru_cache(maxsize=64)
def _label_pattern(
    labels: tuple[tuple[str, tuple[str, ...]], ...],
) -> tuple[re.Pattern[str], tuple[tuple[str, int], ...]]:
    """Return a pattern of all names and synonyms, longest first, with their labels and ranks."""
    forms = [
        (normalize_text(form), name, rank)
        for rank, (name, synonyms) in enumerate(labels)
        for form in (name, *synonyms)
    ]
    forms.sort(key=lambda entry: -len(entry[0]))
    pattern = "|".join(f"({_form_pattern(form)})" for form, _, _ in forms)
    return re.compile(pattern, re.IGNORECASE), tuple((name, rank) for _, name, rank in forms)


def _form_pattern(form: str) -> str:
    """Return a pattern for a name or synonym, with any or no separators between its words."""
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
