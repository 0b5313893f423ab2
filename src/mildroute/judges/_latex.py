"""Conversion of LaTeX to plain text, in which a box becomes a marked line."""

from __future__ import annotations

import re

# The mark before a text that was set apart as the answer.
BOX = "\ue000"

_MAX_BOXES = 50
_MAX_BOX_CHARS = 2000
_BOX_START = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_TAGGED = re.compile(
    r"<(answer|label|result|final_answer)>(.{0,2000}?)</\1>", re.IGNORECASE | re.DOTALL
)
_STYLE = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|mbox|operatorname|underline|bm|boldsymbol)\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(
    r"(\d\s*)?\\[dtc]?frac\s*(?:\{([^{}]{0,100})\}\s*\{([^{}]{0,100})\}|(\d)\s*(\d))"
)
_EXPONENT = re.compile(r"\^\s*\{([^{}]{0,100})\}")
_COMMANDS = {
    "times": "×", "cdot": "×", "approx": "≈", "pm": "±", "pi": "π", "sqrt": "√", "circ": "°",  # noqa: RUF001
    "left": "", "right": "", "quad": " ",
}  # fmt: skip
_COMMAND = re.compile(rf"\^?\\(circ)(?![A-Za-z])|\\({'|'.join(_COMMANDS)})(?![A-Za-z])")
_SYMBOLS = (
    ("\\%", "%"), ("\\$", "$"), ("\\#", "#"), ("\\&", "&"), ("\\_", "_"),
    ("\\(", " "), ("\\)", " "), ("\\[", " "), ("\\]", " "), ("$$", " "),
    ("\\,", " "), ("\\;", " "), ("\\:", " "), ("\\!", ""), ("\\ ", " "), ("\\\\", "\n"),
)  # fmt: skip


def unfold_latex(text: str) -> str:
    """Return a text with its LaTeX converted to plain text."""
    text = _TAGGED.sub(lambda match: _set_apart(match[2]), text)
    text = text.replace("{,}", ",")
    if "\\" in text:
        for _ in range(3):
            text = _STYLE.sub(r"\1", text)
            text = _FRACTION.sub(_write_quotient, text)
        text = _mark_boxes(text)
    text = _EXPONENT.sub(r"^\1", text)
    text = _COMMAND.sub(lambda match: _COMMANDS[match[1] or match[2]], text)
    for symbol, meaning in _SYMBOLS:
        text = text.replace(symbol, meaning)
    return text


def _set_apart(content: str) -> str:
    return f"\n{BOX}{content.strip()}\n"


def _write_quotient(match: re.Match[str]) -> str:
    whole, numerator, denominator, top_digit, bottom_digit = match.groups()
    numerator = (numerator or top_digit or "").strip()
    denominator = (denominator or bottom_digit or "").strip()
    if all(re.fullmatch(r"-?[\d.,]+", part) for part in (numerator, denominator)):
        quotient = f"{numerator}/{denominator}"
    else:
        quotient = f"({numerator})/({denominator})"
    return f"{whole.strip()} {quotient}" if whole else quotient


def _mark_boxes(text: str) -> str:
    r"""Replace each ``\boxed{...}`` with a line that contains the mark and the box's content."""
    pieces = []
    position = 0
    for _ in range(_MAX_BOXES):
        start = _BOX_START.search(text, position)
        if start is None:
            break
        end = _closing_brace(text, start.end())
        pieces += [text[position : start.start()], _set_apart(text[start.end() : end])]
        position = end + 1
    return "".join(pieces) + text[position:]


def _closing_brace(text: str, start: int) -> int:
    """Return the index of the brace that closes the one before ``start``.

    If it is missing or more than 2,000 characters away, return the index at which the search ended.
    """
    depth = 1
    stop = min(len(text), start + _MAX_BOX_CHARS)
    for index in range(start, stop):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return stop
