"""The options of a multiple-choice question, and which of them a reference means."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mildroute.errors import ArgumentError
from mildroute.judges.latex import unfolded
from mildroute.judges.plain import plain, without_emphasis

__all__ = ["ReferenceKind", "normal", "option_meant", "options_of"]

ReferenceKind = Literal["auto", "letter", "index", "text"]
_LETTER = re.compile(r"[A-Za-z]|\d{1,2}")
_LETTER_FIRST = re.compile(
    r"[\W_]*(?:options?\s+|choices?\s+)?[\W_]*([A-Za-z]|\d{1,2})(?:[).:\]}\s-]+(.*))?[\W_]*", re.IGNORECASE | re.DOTALL
)


def normal(text: str) -> str:
    r"""A choice's text in the spelling in which it is looked for.

    Example:
        >>> normal(r"$\frac{1}{2}$ **cup**.")
        '1/2 cup'
    """
    return " ".join(without_emphasis(unfolded(plain(text))).replace("$", " ").split()).rstrip(".;,").strip()


def options_of(choices: Any, letters: str) -> dict[str, str]:
    """Upper-case letter and text of each option.

    Args:
        choices: A list of texts, a mapping from letters to texts, a mapping with the lists ``text`` and ``label``, any of them as JSON,
            or none, for letters without texts.
        letters: The letters that may be answered where no choices are known, and that number a list.

    Returns:
        The texts, by letter.

    Example:
        >>> options_of(["Rome", "Paris"], "ABCD")
        {'A': 'Rome', 'B': 'Paris'}
    """
    if isinstance(choices, str):
        try:
            choices = json.loads(choices)
        except (ValueError, RecursionError) as broken:
            raise ArgumentError(
                f"choices must be a list, a mapping or either as JSON, got {choices[:60]!r}; write them as JSON."
            ) from broken
    if choices is None:
        return dict.fromkeys(letters.upper(), "")
    tolist: Any = getattr(choices, "tolist", None)
    pairs = _pairs(choices if tolist is None else tolist())
    options = {letter.strip().upper(): normal(str(text)) for letter, text in pairs}
    _check(options, len(pairs))
    return options


def option_meant(reference: str, options: Mapping[str, str], kind: ReferenceKind = "auto", first_index: int = 0) -> str | None:
    """The letter that a reference means, or none if it means no option or, read as letter, index and text, several.

    Example:
        >>> option_meant("1", {"A": "Rome", "B": "Paris"}), option_meant("rome", {"A": "Rome", "B": "Paris"})
        ('B', 'A')
    """
    readings = {
        "letter": _by_letter(reference, options),
        "index": _by_index(reference, options, first_index),
        "text": _by_text(reference, options),
    }
    found = {letter for name, letter in readings.items() if kind in ("auto", name) and letter is not None}
    return found.pop() if len(found) == 1 else None


def _pairs(choices: Any) -> list[tuple[str, Any]]:
    if isinstance(choices, Mapping) and {"text", "label"} == {str(key).lower() for key in choices}:
        by_name = {str(key).lower(): value for key, value in choices.items()}
        return list(zip(map(str, by_name["label"]), by_name["text"], strict=False))
    if isinstance(choices, Mapping):
        return [(str(letter), text) for letter, text in choices.items()]
    if isinstance(choices, Sequence) and len(choices) <= len(string.ascii_uppercase):
        return list(zip(string.ascii_uppercase, choices, strict=False))
    raise ArgumentError(f"choices must be a list of at most 26 texts or a mapping from letters to texts, got {str(choices)[:60]!r}.")


def _check(options: Mapping[str, str], count: int) -> None:
    if not options or len(options) < count or not all(_LETTER.fullmatch(letter) for letter in options):
        raise ArgumentError(
            f"choices must have one or more different letters or numbers, got {list(options)!r}; name them A, B, C and so on."
        )


def _by_letter(reference: str, options: Mapping[str, str]) -> str | None:
    found = _LETTER_FIRST.fullmatch(normal(reference).replace("\ue000", ""))
    if found is None or found[1].upper() not in options:
        return None
    letter = found[1].upper()
    return letter if not (found[2] or "").strip(" .") or normal(found[2]).casefold() == options[letter].casefold() else None


def _by_index(reference: str, options: Mapping[str, str], first_index: int) -> str | None:
    if not re.fullmatch(r"\s*\d{1,3}\s*", reference):
        return None
    index = int(reference) - first_index
    return list(options)[index] if 0 <= index < len(options) else None


def _by_text(reference: str, options: Mapping[str, str]) -> str | None:
    found = [letter for letter, text in options.items() if text and text.casefold() == normal(reference).casefold()]
    return found[0] if len(found) == 1 else None
