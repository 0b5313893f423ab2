"""Runs as a process of its own: matches one pattern against one text, for a regular expression cannot be stopped from outside."""

from __future__ import annotations

import json
import re
import resource
import sys
from typing import Any

_MEMORY = 1 << 30


def match(pattern: str, text: str, *, ignore_case: bool, whole: bool, group: int | str | None) -> dict[str, Any]:
    r"""Whether the pattern matches, and the text of a group in its last match.

    Example:
        >>> match(r"is (\w+)", "is A, is B", ignore_case=False, whole=False, group=1)
        {'matched': True, 'group': 'B'}
    """
    try:
        compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        # the last match where its group matters, else any
        found = compiled.fullmatch(text) if whole else compiled.search(text) if group is None else _last(compiled, text)
        return {"matched": found is not None, "group": None if found is None or group is None else found[group]}
    except (re.error, IndexError, RecursionError, OverflowError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _last(compiled: re.Pattern[str], text: str) -> re.Match[str] | None:
    last = None
    for last in compiled.finditer(text):  # noqa: B007 - only the last one counts
        pass
    return last


def _main() -> None:
    given = json.load(sys.stdin)
    seconds = given.pop("seconds")
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    json.dump(match(**given), sys.stdout)


if __name__ == "__main__":
    _main()
