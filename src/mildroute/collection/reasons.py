"""The reasons why cells are empty."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from mildroute.collection.entries import ANSWERS, VERDICTS
from mildroute.collection.store import AnswerStore

__all__ = ["cell_reasons", "empty_reasons", "group_reasons"]

_ATTEMPTS = re.compile(r" \(the last of \d+ attempts\)$")
# A quotation from one query, answer or reply.
_QUOTATION = re.compile(r"(?<!\w)(['\"]).*?\1(?!\w)", re.DOTALL)
_MAX_CHARS = 160


def group_reasons(reasons: Iterable[str]) -> list[tuple[str, int]]:
    """Return the reasons with their counts, the most frequent first.

    Reasons that differ only in their quotations are counted together, without the quotations.

    Example:
        >>> group_reasons(["'a' is not a number", "'b' is not a number", "timeout"])
        [("'...' is not a number", 2), ('timeout', 1)]
    """
    groups: dict[str, Counter[str]] = {}
    for reason in reasons:
        groups.setdefault(_QUOTATION.sub("'...'", reason), Counter())[reason] += 1
    counts = Counter[str]()
    for general_reason, reasons_of_group in groups.items():
        is_single = len(reasons_of_group) == 1
        reason = next(iter(reasons_of_group)) if is_single else general_reason
        counts[reason[:_MAX_CHARS]] += reasons_of_group.total()
    return counts.most_common()


def empty_reasons(
    store: AnswerStore, versions: Mapping[str, str], judge: tuple[str, str]
) -> dict[str, list[tuple[str, int]]]:
    """Return each expert's reasons for empty cells with their counts, the most frequent first.

    Experts without empty cells are left out.
    """
    reasons_by_expert: dict[str, list[str]] = {}
    for (expert, _), reason in cell_reasons(store, versions, judge).items():
        reasons_by_expert.setdefault(expert, []).append(_ATTEMPTS.sub("", reason))
    return {expert: group_reasons(reasons) for expert, reasons in reasons_by_expert.items()}


def cell_reasons(
    store: AnswerStore, versions: Mapping[str, str], judge: tuple[str, str]
) -> dict[tuple[str, str], str]:
    """Return the reason for each cell that was called but has no score.

    Args:
        store: The store.
        versions: Version of each expert.
        judge: Name and version of the judge.

    Returns:
        The reasons by expert and digest of the query.
    """
    last: dict[tuple[str, str], str] = {}
    for row in store.entries(ANSWERS, ["expert", "version", "query", "error"]):
        if versions.get(row["expert"]) == row["version"] and row["error"]:
            last[row["expert"], row["query"]] = row["error"]
    for row in store.entries(
        VERDICTS, ["expert", "version", "query", "judge", "judge_version", "score", "reason"]
    ):
        if (
            versions.get(row["expert"]) == row["version"]
            and (row["judge"], row["judge_version"]) == judge
        ):
            key = (row["expert"], row["query"])
            if row["score"] is None:
                last[key] = f"the judge could not decide: {row['reason']}"
            else:
                last.pop(key, None)
    return last
