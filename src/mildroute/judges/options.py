"""The options of a multiple-choice question, and the one that a reference means."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from mildroute.exceptions import ArgumentError
from mildroute.judges._latex import BOX, unfold_latex
from mildroute.text import drop_emphasis, normalize_text

__all__ = ["ReferenceKind", "parse_options", "referenced_option"]

ReferenceKind = Literal["auto", "letter", "index", "text"]

_LETTER = re.compile(r"[A-Za-z]|\d{1,2}")
_LETTER_FIRST = re.compile(
    r"[\W_]*(?:options?\s+|choices?\s+)?[\W_]*([A-Za-z]|\d{1,2})(?:[).:\]}\s-]+(.*))?[\W_]*",
    re.IGNORECASE | re.DOTALL,
)


def parse_options(choices: Any, letters: str) -> dict[str, str]:
    """Return the uppercase letter and the text of each option.

    Args:
        choices: A list of texts, a mapping from letters to texts, a mapping with the lists ``text``
            and ``label``, or any of them as JSON; ``None`` means letters without texts.
        letters: The letters allowed as answers if ``choices`` is ``None``.
    """
    if isinstance(choices, str):
        try:
            choices = json.loads(choices)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(
                f"choices must be a list, a mapping or either as JSON, got {choices[:60]!r}; write"
                " them as JSON."
            ) from error
    if choices is None:
        return dict.fromkeys(letters.upper(), "")
    pairs = _letters_and_texts(choices.tolist() if hasattr(choices, "tolist") else choices)
    options = {letter.strip().upper(): _normalize_option(str(text)) for letter, text in pairs}
    if len(options) < len(pairs) or not options or not all(map(_LETTER.fullmatch, options)):
        raise ArgumentError(
            f"choices must have one or more different letters or numbers, got {list(options)!r};"
            " name them A, B, C and so on."
        )
    return options


def referenced_option(
    reference: str, options: Mapping[str, str], kind: ReferenceKind = "auto", first_index: int = 0
) -> str | None:
    """Return the letter that a reference means, or ``None``.

    ``None`` is also returned if the reference, read as a letter, an index and a text, matches
    several options.
    """
    readings = {
        "letter": _option_by_letter(reference, options),
        "index": _option_by_index(reference, options, first_index),
        "text": _option_by_text(reference, options),
    }
    letters = {
        letter for name, letter in readings.items() if kind in ("auto", name) and letter is not None
    }
    return letters.pop() if len(letters) == 1 else None


def _normalize_option(text: str) -> str:
    """Return an option's text in the normalized spelling that is searched for in answers."""
    text = drop_emphasis(unfold_latex(normalize_text(text))).replace("$", " ")
    return " ".join(text.split()).rstrip(".;,").strip()


def _letters_and_texts(choices: Any) -> list[tuple[str, Any]]:
    if isinstance(choices, Mapping) and {"text", "label"} == {str(key).lower() for key in choices}:
        by_name = {str(key).lower(): value for key, value in choices.items()}
        return list(zip(map(str, by_name["label"]), by_name["text"], strict=False))
    if isinstance(choices, Mapping):
        return [(str(letter), text) for letter, text in choices.items()]
    if isinstance(choices, Sequence) and len(choices) <= len(string.ascii_uppercase):
        return list(zip(string.ascii_uppercase, choices, strict=False))
    raise ArgumentError(
        "choices must be a list of at most 26 texts or a mapping from letters to texts, got"
        f" {str(choices)[:60]!r}."
    )


def _option_by_letter(reference: str, options: Mapping[str, str]) -> str | None:
    match = _LETTER_FIRST.fullmatch(_normalize_option(reference).replace(BOX, ""))
    if match is None or match[1].upper() not in options:
        return None
    letter = match[1].upper()
    text = match[2] or ""
    if text.strip(" .") and _normalize_option(text).casefold() != options[letter].casefold():
        return None
    return letter


def _option_by_index(reference: str, options: Mapping[str, str], first_index: int) -> str | None:
    if not re.fullmatch(r"\s*\d{1,3}\s*", reference):
        return None
    index = int(reference) - first_index
    return list(options)[index] if 0 <= index < len(options) else None


def _option_by_text(reference: str, options: Mapping[str, str]) -> str | None:
    target = _normalize_option(reference).casefold()
    letters = [letter for letter, text in options.items() if text and text.casefold() == target]
    return letters[0] if len(letters) == 1 else None
