"""Functions that read an answer's result, so that two answers can be compared.

The judges' parsers are imported when a cascade reads its first answer. A router that decides by
inputs alone, such as one in another gateway's plug-in, does not load them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from mildroute.text import drop_thinking, normalize_text

__all__ = ["LAST_CHARACTERS", "READERS", "Reading", "best_reading"]

Reading = Literal["auto", "choice", "number", "text", "none"]

# Answers state their results at the end; encoding a whole long answer dilutes them.
LAST_CHARACTERS = 400
# Longer answers are prose, which can say the same thing in many ways.
_MAX_SHORT_CHARACTERS = 120
_LETTERS = "ABCDEFGHIJ"
# Number of answers on which readers are tried.
_SAMPLE_ROWS = 300
# Minimum share of them that a reader must be able to read.
_MIN_SHARE = 0.75
_QUOTES = " \t\r\n.;\"'`$*"


@functools.cache
def _letter_options() -> Any:
    from mildroute.judges.options import parse_options

    return parse_options(None, _LETTERS)


def _read_choice(text: str) -> str | None:
    from mildroute.judges.stated_choice import read_choice

    return read_choice(text[-LAST_CHARACTERS:], _letter_options())


def _read_number(text: str) -> str | None:
    from mildroute.judges.stated_number import read_number

    number = read_number(text[-LAST_CHARACTERS:])
    return None if number is None else f"{number.value}{'%' if number.percent else ''}"


def _read_short_text(text: str) -> str | None:
    """Return a short answer in normal form, so that equal answers compare equal, or None."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, (dict, list)):
        return json.dumps(document, sort_keys=True).casefold()
    normalized = normalize_text(drop_thinking(text)).replace("\\", "").strip(_QUOTES).casefold()
    if not normalized or len(normalized) > _MAX_SHORT_CHARACTERS:
        return None
    try:
        return repr(float(normalized.replace(",", "")))
    except ValueError:
        return "".join(normalized.split())


def _read_nothing(_text: str) -> None:
    return None


# The readers, in the order in which they are tried.
READERS: dict[str, Callable[[str], str | None]] = {
    "choice": _read_choice,
    "text": _read_short_text,
    "number": _read_number,
    "none": _read_nothing,
}


def best_reading(rows: Sequence[str]) -> str:
    """Return the name of the first reader that can read most answers, or ``"none"``."""
    sample = [text for text in rows if text.strip()]
    sample = sample[:: max(len(sample) // _SAMPLE_ROWS, 1)]
    for name, read in READERS.items():
        if sample and np.mean([read(text) is not None for text in sample]) >= _MIN_SHARE:
            return name
    return "none"
