"""Why cells are empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from mildroute.collecting.archive import Archive
from mildroute.collecting.entries import ANSWERS, VERDICTS

__all__ = ["reasons_in"]

_ATTEMPTS = re.compile(r" \(the last of \d+ attempts\)$")
_SHOWN = 160


def reasons_in(archive: Archive, versions: Mapping[str, str], judge: tuple[str, str]) -> dict[str, list[tuple[str, int]]]:
    """What experts and judge said where there is no score, the commonest first.

    Args:
        archive: What was collected.
        versions: Version of each expert.
        judge: Name and version of the judge.

    Returns:
        Reasons and how many cells have them, by expert; only of experts that have any.

    Example:
        >>> import tempfile
        >>> reasons_in(Archive(tempfile.mkdtemp()), {"small": "v1"}, ("exact", "j1"))
        {}
    """
    last: dict[tuple[str, str], str] = {}
    for row in archive.entries(ANSWERS, ["expert", "version", "query", "error"]):
        if versions.get(row["expert"]) == row["version"] and row["error"]:
            last[row["expert"], row["query"]] = row["error"]
    for row in archive.entries(VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score", "reason"]):
        if versions.get(row["expert"]) == row["version"] and (row["judge"], row["judge_version"]) == judge:
            key = (row["expert"], row["query"])
            if row["score"] is None:
                last[key] = f"the judge could not tell: {row['reason']}"
            else:
                last.pop(key, None)
    found: dict[str, Counter[str]] = {}
    for (expert, _), reason in last.items():
        found.setdefault(expert, Counter())[_ATTEMPTS.sub("", reason)[:_SHOWN]] += 1
    return {expert: counts.most_common() for expert, counts in found.items()}
