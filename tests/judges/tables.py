"""Tables of messy answers and the verdicts that a careful reader would give."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from mildroute.experts.base import Query
from mildroute.judges.base import Judge, ReadingJudge, Verdict
from mildroute.judges.registry import get_judge

FOLDER = Path(__file__).parent / "cases"


def table(name: str) -> list[dict[str, Any]]:
    """The cases of a judge; fields that are given by a name stand in the table's shared part."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    shared = content.get("shared", {})
    return [case | {"fields": _fields(case.get("fields", {}), shared)} for case in content["cases"]]


def _fields(fields: Any, shared: dict[str, Any]) -> Any:
    return shared[fields] if isinstance(fields, str) else fields


def query_of(case: dict[str, Any]) -> Query:
    return Query("q", "What is asked?", reference=case["reference"], fields=case["fields"])


def judge_of(name: str, case: dict[str, Any]) -> Judge:
    return get_judge(name, **case.get("settings", {}))


def verdict(judge: Judge, query: Query, text: str) -> Verdict:
    return asyncio.run(judge.judge(query, text))


def pure_verdict(judge: Judge, query: Query, text: str) -> Verdict:
    """The verdict without an event loop, which takes longer than a judge that only reads."""
    if isinstance(judge, ReadingJudge):
        return judge.score(query, text)
    return verdict(judge, query, text)


def label_of(case: dict[str, Any]) -> str:
    """A short name of a case in pytest's output."""
    answer = case.get("note") or case.get("answer", case.get("reply", case.get("replies")))
    return (
        f"{case.get('reference')!s:.12}<-{answer!s:.40}".encode("ascii", "backslashreplace")
        .decode()
        .replace("\n", "|")
        .replace("\0", "|")
    )
