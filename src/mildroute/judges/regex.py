"""Regular expressions: an answer is right if a pattern matches it, or if what the pattern finds is right."""

from __future__ import annotations

import asyncio
import json
import math
import re
import tempfile
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mildroute._fingerprint import version_of
from mildroute.exceptions import ArgumentError
from mildroute.experts.base import Query
from mildroute.judges._sandbox import run_script
from mildroute.judges.base import NO_REFERENCE, Judge, Verdict, lack_of, reference_of
from mildroute.judges.exact_match import ExactMatchJudge

__all__ = ["RegexJudge"]


_READING = 1
_SCRIPT = Path(__file__).with_name("_regex_child.py")


@dataclass(frozen=True)
class RegexJudge:
    r"""Right if a pattern matches; with a group, right if another judge finds the group's text right.

    A pattern that needs very long on some texts is common and hard to see, so each match runs in a process of its own, which takes some
    tens of milliseconds and is killed when its time is up. Then there is no verdict: the pattern is at fault, not the answer.

    Args:
        pattern: In the syntax of :mod:`re`; ``query.fields["pattern"]`` comes first.
        ignore_case: Whether case does not count; other flags are written as ``(?s)`` in the pattern.
        whole: Whether the pattern must match all of the answer but for spaces around it, and not only a part.
        group: Number or name of a group; its text in the last match is compared with the reference.
        compare: The judge that compares it; exact match by default.
        seconds: After which a match is given up.
        max_chars: Length of the longest answer that is tried.
        name: Its name in tables.

    Example:
        >>> import asyncio
        >>> query = Query("q1", "The capital of France?", reference="Paris")
        >>> asyncio.run(RegexJudge(r"Answer: (\w+)", group=1).judge(query, "Answer: Paris")).score
        1.0
    """

    pattern: str | None = None
    ignore_case: bool = False
    whole: bool = False
    group: int | str | None = None
    compare: Judge = field(default_factory=ExactMatchJudge)
    seconds: float = 5.0
    max_chars: int = 100_000
    name: str = "regex"

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 < self.seconds < math.inf or self.max_chars < 1:
            raise ArgumentError(f"seconds and max_chars must be positive, got {self.seconds!r} and {self.max_chars!r}.")
        if not isinstance(self.compare, Judge):
            raise ArgumentError(f"compare must be a judge, got {self.compare!r}; use get_judge('regex', compare='numeric') for a name.")
        if self.pattern is not None:
            _check(self.pattern, self.group)

    @property
    def version(self) -> str:
        """Changes with all that changes verdicts."""
        return version_of(self, _READING)

    async def judge(self, query: Query, text: str) -> Verdict:
        """Match the answer."""
        if lack := self.lacks(query):
            return Verdict(None, lack)
        pattern = str(query.fields.get("pattern", self.pattern))
        text = unicodedata.normalize("NFC", text).strip()
        if len(text) > self.max_chars:
            return Verdict(None, f"the answer has {len(text):,} characters, more than max_chars, {self.max_chars:,}")
        found = await asyncio.to_thread(self._match, unicodedata.normalize("NFC", pattern), text)
        if "error" in found:
            return Verdict(None, found["error"][:200])
        if not found["matched"] or (self.group is not None and found["group"] is None):
            return Verdict(0.0, "the pattern does not match")
        return Verdict(1.0, "the pattern matches") if self.group is None else await self.compare.judge(query, found["group"])

    def lacks(self, query: Query) -> str:
        """What keeps it from scoring any answer to a query."""
        pattern = query.fields.get("pattern", self.pattern)
        if not isinstance(pattern, str) or not pattern:
            return "there is no pattern; set it, or give the query a field 'pattern'"
        return "" if self.group is None else (lack_of(self.compare, query) if reference_of(query) else NO_REFERENCE)

    def _match(self, pattern: str, text: str) -> Mapping[str, Any]:
        given = {"pattern": pattern, "text": text, "ignore_case": self.ignore_case, "whole": self.whole, "group": self.group}
        with tempfile.TemporaryDirectory() as folder:
            finished = run_script(_SCRIPT, {**given, "seconds": math.ceil(self.seconds)}, self.seconds, folder=folder, options=["-S"])
        if finished.timed_out or finished.code != 0:
            return {"error": f"the pattern {pattern[:40]!r} took more than {self.seconds:g} s or too much memory; make it simpler"}
        # a text that is cut off after 64 KiB is no JSON
        try:
            found: Mapping[str, Any] = json.loads(finished.output)
        except ValueError:
            return {"error": f"the pattern {pattern[:40]!r} finds a text that is too long to compare"}
        return found


def _check(pattern: str, group: int | str | None) -> None:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ArgumentError(f"pattern must be a regular expression, got {pattern[:60]!r}: {error}.") from error
    if group is not None and group not in compiled.groupindex and group not in range(compiled.groups + 1):
        raise ArgumentError(f"group must be a group of the pattern {pattern[:60]!r}, got {group!r}.")
