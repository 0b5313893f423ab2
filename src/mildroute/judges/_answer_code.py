"""Python code in an answer: between fences, or bare with prose around it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mildroute.text import drop_thinking, strip_spaces

_MAX_TEXT = 400_000
# Quantifiers are possessive and only one line is matched at a time, because a pattern that
# backtracked took minutes for a text of 100,000 identical letters.
_OPENING = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([\w+#.-]*+)[^`]*+")
_CLOSED_LATE = re.compile(r"(?:`{3,}+|~{3,}+)\s*+\Z")
_MAX_LINE = 1000
_PYTHON = {"python", "py", "python3", "py3", "python2", "pycon", "ipython"}
_DEFINED = re.compile(
    r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE
)
_CODE_LINE = re.compile(
    r"from\s++\w[\w.]*+\s++import\b|import\s++\w|(?:async\s++)?+def\s++\w++\s*+\("
    r"|class\s++\w++\s*+[:(]|@\w|if\s++__name__"
    r"|(?<!\w)\w++\s*+(?::\s*+\w[\w\[\], .]*+)?+=(?!=)|\b(?:for|while|try|with|if)\b.*:\s*$"
)
_TRANSCRIPT = re.compile(r"\A\s*(?:>>>|\$ |In \[)")


def find_python(text: str, names: Sequence[str] = ()) -> list[str]:
    """Return variants of the Python code in an answer, best first.

    The first variant that compiles counts.

    Args:
        text: The expert's answer.
        names: Names that the code should define. If the answer has several blocks, all blocks up to
            the last one that defines any of these names are joined. Later definitions replace
            earlier ones, and the blocks after the last definition are usage examples.

    Returns:
        Variants of the code; empty if the answer has no code.
    """
    text = drop_thinking(text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n"))
    blocks = [
        block
        for block in _blocks(strip_spaces(text))
        if block.code.strip() and not _TRANSCRIPT.match(block.code)
    ]
    tagged = [block for block in blocks if block.language in _PYTHON]
    chosen = tagged or [block for block in blocks if not block.language and _has_code(block.code)]
    if chosen:
        defining = [index for index, block in enumerate(chosen) if block.defines(names)]
        last = defining[-1] if defining else len(chosen) - 1
        joined = "\n".join(block.code for block in chosen[: last + 1])
        return list(dict.fromkeys([joined, chosen[last].code]))
    return [] if blocks else _bare_code(text)


@dataclass(frozen=True)
class _Block:
    language: str
    code: str

    def defines(self, names: Sequence[str]) -> bool:
        return any(
            name in names
            for match in _DEFINED.finditer(self.code)
            for name in match.groups()
            if name
        )


def _blocks(text: str) -> list[_Block]:
    """Return the fenced blocks; the last closing fence may be missing or follow code on a line."""
    blocks: list[_Block] = []
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        if opening is None:
            opening = _OPENING.fullmatch(line)
            lines = []
            continue
        stripped = line.rstrip(" \t")
        if stripped.endswith(opening[2]):
            code = stripped.removesuffix(opening[2])
            blocks.append(_make_block(opening, [*lines, code if code.strip() else ""]))
            opening = None
        else:
            lines.append(line)
    if opening is not None:
        blocks.append(_make_block(opening, lines))
    return blocks


def _make_block(opening: re.Match[str], lines: list[str]) -> _Block:
    """Return a block without its fence's indentation or a closing fence on its last line."""
    code = _CLOSED_LATE.sub("", "\n".join(lines))
    unindented = "\n".join(line.removeprefix(opening[1]) for line in code.split("\n"))
    return _Block(opening[3].lower(), textwrap.dedent(unindented))


def _has_code(code: str) -> bool:
    return any(_CODE_LINE.search(line[:_MAX_LINE]) for line in code.split("\n"))


def _bare_code(text: str) -> list[str]:
    """Return variants of the code in a text without fences.

    The code may be the whole text. It may also begin at the first line that looks like code, and
    end with the text or at a blank line that prose may follow.
    """
    variants: list[str] = []
    for code in (textwrap.dedent(text).strip("\n\ufeff"), strip_spaces(text)):
        lines = code.split("\n")
        starts = (index for index, line in enumerate(lines) if _CODE_LINE.match(line[:_MAX_LINE]))
        start = next(starts, None)
        if start is not None:
            blank = [
                index for index in range(len(lines) - 1, start, -1) if not lines[index].strip()
            ]
            ends = [len(lines), *blank[:50]]
            variants += [code, *("\n".join(lines[start:end]) for end in ends)]
    return list(dict.fromkeys(variants))
