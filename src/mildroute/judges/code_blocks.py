"""Python code in an answer: between fences, or bare with prose around it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from mildroute.judges.plain import trimmed, without_thinking

__all__ = ["python_in"]

_MAX_TEXT = 400_000
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)[^\n`]*\n(?P<code>.*?)(?:^[ \t]*)?(?:(?P=fence)[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_CLOSED_LATE = re.compile(r"(?:`{3,}|~{3,})\s*\Z")
_PYTHON = {"python", "py", "python3", "py3", "python2", "pycon", "ipython"}
_DEFINED = re.compile(r"^(?:(?:async[ \t]+)?def|class)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=(?!=)", re.MULTILINE)
_CODE_LINE = re.compile(
    r"(?:from\s+\w[\w.]*\s+import\b|import\s+\w|(?:async\s+)?def\s+\w+\s*\(|class\s+\w+\s*[:(]|@\w|if\s+__name__"
    r"|\w+\s*(?::\s*\w[\w\[\], .]*)?=(?!=)|(?:for|while|try|with|if)\b.*:\s*$)"
)
_TRANSCRIPT = re.compile(r"\A\s*(?:>>>|\$ |In \[)")


def python_in(text: str, names: Sequence[str] = ()) -> list[str]:
    r"""Ways to read the Python code out of an answer, best first; the first one that compiles is meant.

    Args:
        text: What the expert wrote.
        names: Names that the code should define. Of several blocks all count up to the last one that defines any of them: later
            definitions replace earlier ones, and what follows are examples of use.

    Returns:
        Code; empty if there is none.

    Example:
        >>> python_in("Sure:\n\n```python\nx = 1\n```\nDone."), python_in("I cannot.")
        (['x = 1\n'], [])
    """
    text = without_thinking(text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n"))
    blocks = [block for block in _blocks(trimmed(text)) if block.code.strip() and not _TRANSCRIPT.match(block.code)]
    tagged = [block for block in blocks if block.language in _PYTHON]
    chosen = tagged or [block for block in blocks if not block.language and _CODE_LINE.search(block.code)]
    if chosen:
        wanted = [at for at, block in enumerate(chosen) if block.defines(names)]
        last = wanted[-1] if wanted else len(chosen) - 1
        joined = "\n".join(block.code for block in chosen[: last + 1])
        return list(dict.fromkeys([joined, chosen[last].code]))
    return [] if blocks else _bare(text)


@dataclass(frozen=True)
class _Block:
    language: str
    code: str

    def defines(self, names: Sequence[str]) -> bool:
        return any(name in names for found in _DEFINED.finditer(self.code) for name in found.groups() if name)


def _blocks(text: str) -> list[_Block]:
    return [_Block(found["language"].lower(), _unindented(found["code"], found["indent"])) for found in _FENCE.finditer(text)]


def _unindented(code: str, indent: str) -> str:
    """Code without the indent of its fence, and without a fence that closes on its last line."""
    code = _CLOSED_LATE.sub("", code)
    lines = [line.removeprefix(indent) for line in code.split("\n")]
    return textwrap.dedent("\n".join(lines))


def _bare(text: str) -> list[str]:
    """All of it, or from the first line that looks like code, to the end or up to some blank line, after which prose may begin."""
    found: list[str] = []
    for code in (textwrap.dedent(text).strip("\n\ufeff"), trimmed(text)):
        lines = code.split("\n")
        start = next((at for at, line in enumerate(lines) if _CODE_LINE.match(line)), None)
        if start is not None:
            ends = [at for at in range(len(lines) - 1, start, -1) if not lines[at].strip()][:50]
            found += [code, *("\n".join(lines[start:end]) for end in (len(lines), *ends))]
    return list(dict.fromkeys(found))
