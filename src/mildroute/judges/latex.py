r"""LaTeX as plain text: ``\frac{1}{2}`` is 1/2, and what stands in ``\boxed{}`` gets a line and a mark of its own."""

from __future__ import annotations

import re

__all__ = ["BOX", "unfolded"]

BOX = "\ue000"
"""Stands before a text that its writer set apart as the answer."""

_MAX_BOXES = 50
_MAX_BOX = 2000
_BOX_START = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
_TAGGED = re.compile(r"<(answer|label|result|final_answer)>(.{0,2000}?)</\1>", re.IGNORECASE | re.DOTALL)
_STYLE = re.compile(r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|mbox|operatorname|underline|bm|boldsymbol)\s*\{([^{}]*)\}")
_FRACTION = re.compile(r"(\d\s*)?\\[dtc]?frac\s*(?:\{([^{}]{0,100})\}\s*\{([^{}]{0,100})\}|(\d)\s*(\d))")
_EXPONENT = re.compile(r"\^\s*\{([^{}]{0,100})\}")
_COMMANDS = {
    "times": "×", "cdot": "×", "approx": "≈", "pm": "±", "pi": "π", "sqrt": "√", "circ": "°",  # noqa: RUF001
    "left": "", "right": "", "quad": " ",
}  # fmt: skip
_COMMAND = re.compile(rf"\^?\\(circ)(?![A-Za-z])|\\({'|'.join(_COMMANDS)})(?![A-Za-z])")
_SYMBOLS = (
    ("\\%", "%"), ("\\$", "$"), ("\\#", "#"), ("\\&", "&"), ("\\_", "_"), ("\\(", " "), ("\\)", " "), ("\\[", " "), ("\\]", " "),
    ("$$", " "), ("\\,", " "), ("\\;", " "), ("\\:", " "), ("\\!", ""), ("\\ ", " "), ("\\\\", "\n"),
)  # fmt: skip


def unfolded(text: str) -> str:
    r"""Text whose LaTeX is written plainly.

    Example:
        >>> unfolded(r"so $\boxed{\text{C}}$").replace(BOX, "BOX ").split()
        ['so', '$', 'BOX', 'C', '$']
        >>> unfolded(r"1\frac{1}{2} \approx 10^{0}")
        '1 1/2 ≈ 10^0'
    """
    text = _TAGGED.sub(lambda found: _set_apart(found[2]), text)
    text = text.replace("{,}", ",")
    if "\\" in text:
        for _ in range(3):
            text = _STYLE.sub(r"\1", text)
            text = _FRACTION.sub(_quotient, text)
        text = _without_boxes(text)
    text = _COMMAND.sub(lambda found: _COMMANDS[found[1] or found[2]], _EXPONENT.sub(r"^\1", text))
    for symbol, meaning in _SYMBOLS:
        text = text.replace(symbol, meaning)
    return text


def _set_apart(inside: str) -> str:
    return f"\n{BOX}{inside.strip()}\n"


def _quotient(found: re.Match[str]) -> str:
    whole, over, under, digit_over, digit_under = found.groups()
    over, under = (over or digit_over or "").strip(), (under or digit_under or "").strip()
    plain = all(re.fullmatch(r"-?[\d.,]+", part) for part in (over, under))
    value = f"{over}/{under}" if plain else f"({over})/({under})"
    return f"{whole.strip()} {value}" if whole else value


def _without_boxes(text: str) -> str:
    pieces, at = [], 0
    for _ in range(_MAX_BOXES):
        start = _BOX_START.search(text, at)
        if start is None:
            break
        end = _closing_brace(text, start.end())
        pieces += [text[at : start.start()], _set_apart(text[start.end() : end])]
        at = end + 1
    return "".join(pieces) + text[at:]


def _closing_brace(text: str, start: int) -> int:
    """Where the brace that was opened before ``start`` is closed, or the end of the text or of patience."""
    depth, stop = 1, min(len(text), start + _MAX_BOX)
    for at in range(start, stop):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return at
    return stop
