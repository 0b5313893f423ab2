"""Answers that were given before, from a file or from memory, as an expert."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute.costs.prices import Price
from mildroute.costs.sources import one_line
from mildroute.errors import TableError
from mildroute.experts.fingerprint import fingerprint
from mildroute.experts.protocol import Answer, Query

__all__ = ["Recorded"]

_PARQUET, _JSON_LINES = {".parquet", ".pq"}, {".jsonl", ".ndjson"}
_CHUNK = 1 << 20
_MOST = 1e15
_COUNTS = ("tokens_in", "tokens_out", "attempts")
_AMOUNTS = ("dollars", "latency", "doubtful_dollars")


class Recorded:
    """Replays answers; a query that has none gets an error.

    Args:
        name: Its name in tables.
        answers: Answers by query_id.
        version: Text that changes with the answers; a hash of them if it is not given.

    Example:
        >>> import asyncio
        >>> expert = Recorded("large", {"q1": Answer("4", dollars=0.002)})
        >>> [answer.text for answer in asyncio.run(expert.answer([Query("q1", "2 + 2?"), Query("q2", "3 + 3?")]))]
        ['4', None]
    """

    price: Price | None = None
    batch_size = 256
    concurrency = 1

    def __init__(self, name: str, answers: Mapping[str, Answer], *, version: str | None = None) -> None:
        self.name = name
        self._answers = answers
        self.version = _version_of(answers) if version is None else version

    @classmethod
    def read(cls, name: str, path: str | Path, *, version: str = "") -> Recorded:
        """From a Parquet or JSON-lines file with query_id and text, and where known tokens_in, tokens_out, dollars, latency and error.

        Of several rows with one query_id the last counts. A last line that was not written to its end is left out.

        Example:
            >>> Recorded.read("large", "answers.txt")
            Traceback (most recent call last):
            mildroute.errors.TableError: recorded answers are read from .parquet or .jsonl files, got 'answers.txt'.
        """
        path = Path(path)
        if path.suffix.lower() not in _PARQUET | _JSON_LINES:
            raise TableError(f"recorded answers are read from .parquet or .jsonl files, got {str(path)!r}.")
        rows = _parquet_rows(path) if path.suffix.lower() in _PARQUET else _json_rows(path)
        try:
            answers = dict(_answer_in(row, f"{str(path)!r}, {where}") for where, row in rows)
            digest = _digest(path)
        except (OSError, pa.ArrowException) as error:
            raise TableError(f"{str(path)!r} cannot be read: {one_line(error)}; check the path and the file.") from error
        return cls(name, answers, version=fingerprint("recorded", {"sha256": digest}, version=version))

    def worst_dollars(self, query: Query) -> float:
        """What the recorded answer cost."""
        answer = self._answers.get(query.query_id)
        return 0.0 if answer is None else answer.dollars + answer.doubtful_dollars

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order."""
        return [self._answers.get(query.query_id) or _missing(query) for query in batch]

    async def close(self) -> None:
        """Nothing to let go of."""


def _missing(query: Query) -> Answer:
    return Answer(None, error=f"no answer to query {query.query_id!r:.80} was recorded", attempts=0)


def _version_of(answers: Mapping[str, Answer]) -> str:
    digest = hashlib.sha256()
    for query_id in sorted(answers):
        digest.update(json.dumps([query_id, asdict(answers[query_id])]).encode() + b"\n")
    return fingerprint("recorded", {"sha256": digest.hexdigest()})


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    from pyarrow.parquet import ParquetFile

    known = {"query_id", "text", "error", *_COUNTS, *_AMOUNTS}
    with ParquetFile(path) as file:
        number = 0
        for batch in file.iter_batches(columns=[name for name in file.schema_arrow.names if name in known]):
            for row in batch.to_pylist():
                yield f"row {number}", row
                number += 1


def _json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                if not line.endswith(b"\n"):
                    return
                raise TableError(f"{str(path)!r}, line {number}: not valid JSON ({one_line(error)}); correct or remove it.") from error


def _answer_in(row: Any, where: str) -> tuple[str, Answer]:
    if not isinstance(row, dict) or not isinstance(row.get("query_id"), str):
        raise TableError(f"{where}: each answer needs a text query_id, got {row!r:.80}; write query_id and text.")
    for name in ("text", "error"):
        if not isinstance(row.get(name), (str, type(None))):
            raise TableError(f"{where}: {name} must be text or missing, got {row[name]!r:.80}.")
    text, error = row.get("text"), row.get("error") or ""
    if error or text is None:
        text, error = None, error or "recorded without text"
    counts = {name: _number(row, name, where, whole=True) for name in _COUNTS if row.get(name) is not None}
    amounts = {name: _number(row, name, where) for name in _AMOUNTS if row.get(name) is not None}
    return row["query_id"], Answer(text, error=error, **counts, **amounts)


def _number(row: Mapping[str, Any], name: str, where: str, *, whole: bool = False) -> Any:
    value = row[name]
    # Without a bound on the answer, what a lost attempt may have cost is infinite.
    most = math.inf if name == "doubtful_dollars" else _MOST
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most
    if not good or (whole and value != int(value)):
        raise TableError(f"{where}: {name} must be a {'whole' if whole else 'finite'} number, not negative, got {value!r:.80}.")
    return int(value) if whole else float(value)
