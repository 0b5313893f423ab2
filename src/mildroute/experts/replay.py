"""An expert that replays recorded answers, from a file or from memory."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute._files import one_line
from mildroute._fingerprint import fingerprint
from mildroute.exceptions import TableError
from mildroute.experts.base import Answer, Expert, Query

__all__ = ["ReplayExpert"]

_PARQUET = {".parquet", ".pq"}
_JSON_LINES = {".jsonl", ".ndjson"}
_MAX_NUMBER = 1e15
_COUNTS = ("tokens_in", "tokens_out", "attempts")
_AMOUNTS = ("dollars", "latency", "unconfirmed_cost")
_LOGPROB = "logprob"


class ReplayExpert(Expert):
    """An expert that replays recorded answers; a query without one gets an error.

    Args:
        name: The expert's name in tables.
        answers: Answers by query_id.
        version: Text that changes with the answers; defaults to a hash of them.

    Example:
        >>> import asyncio
        >>> expert = ReplayExpert("large", {"q1": Answer("4", dollars=0.002)})
        >>> queries = [Query("q1", "2 + 2?"), Query("q2", "3 + 3?")]
        >>> [answer.text for answer in asyncio.run(expert.answer(queries))]
        ['4', None]
    """

    batch_size = 256

    def __init__(
        self, name: str, answers: Mapping[str, Answer], *, version: str | None = None
    ) -> None:
        self.name = name
        self._answers = answers
        self.version = _hash_answers(answers) if version is None else version

    @classmethod
    def read(cls, name: str, path: str | Path, *, version: str = "") -> ReplayExpert:
        """Read recorded answers from a Parquet or JSON Lines file.

        The file has ``query_id`` and ``text``, and optionally ``tokens_in``, ``tokens_out``,
        ``dollars``, ``latency``, ``logprob`` and ``error``. If several rows have the same
        ``query_id``, the last one counts. An incomplete last line is ignored.

        Example:
            >>> ReplayExpert.read("large", "answers.txt")
            Traceback (most recent call last):
            mildroute.exceptions.TableError: recorded answers are read from .parquet or ...
        """
        path = Path(path)
        if path.suffix.lower() not in _PARQUET | _JSON_LINES:
            raise TableError(
                f"recorded answers are read from .parquet or .jsonl files, got {str(path)!r}."
            )
        rows = _parquet_rows(path) if path.suffix.lower() in _PARQUET else _json_rows(path)
        try:
            answers = dict(_parse_row(row, f"{str(path)!r}, {position}") for position, row in rows)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"{str(path)!r} cannot be read: {one_line(error)}; check the path and the file."
            ) from error
        version = fingerprint("recorded", {"sha256": digest}, version=version)
        return cls(name, answers, version=version)

    def max_cost(self, query: Query) -> float:
        """Return the cost of the recorded answer."""
        answer = self._answers.get(query.query_id)
        return 0.0 if answer is None else answer.dollars + answer.unconfirmed_cost

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Return one answer for each query, in their order."""
        return [self._answers.get(query.query_id) or _missing_answer(query) for query in batch]


def _missing_answer(query: Query) -> Answer:
    error = f"no answer to query {query.query_id!r:.80} was recorded"
    return Answer(None, error=error, attempts=0)


def _hash_answers(answers: Mapping[str, Answer]) -> str:
    digest = hashlib.sha256()
    for query_id in sorted(answers):
        digest.update(json.dumps([query_id, asdict(answers[query_id])]).encode() + b"\n")
    return fingerprint("recorded", {"sha256": digest.hexdigest()})


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    from pyarrow.parquet import ParquetFile

    columns = {"query_id", "text", "error", _LOGPROB, *_COUNTS, *_AMOUNTS}
    with ParquetFile(path) as file:
        number = 0
        names = [name for name in file.schema_arrow.names if name in columns]
        for batch in file.iter_batches(columns=names):
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
                raise TableError(
                    f"{str(path)!r}, line {number}: not valid JSON ({one_line(error)}); correct or"
                    " remove it."
                ) from error


def _parse_row(row: Any, position: str) -> tuple[str, Answer]:
    """Return the query_id and the answer of a row."""
    if not isinstance(row, dict) or not isinstance(row.get("query_id"), str):
        raise TableError(
            f"{position}: each answer needs a text query_id, got {row!r:.80}; write query_id and"
            " text."
        )
    for name in ("text", "error"):
        if not isinstance(row.get(name), (str, type(None))):
            raise TableError(f"{position}: {name} must be text or missing, got {row[name]!r:.80}.")
    text = row.get("text")
    error = row.get("error") or ("recorded without text" if text is None else "")
    counts = {
        name: int(_parse_number(row[name], name, position, is_whole=True))
        for name in _COUNTS
        if row.get(name) is not None
    }
    amounts = {
        name: _parse_number(row[name], name, position)
        for name in _AMOUNTS
        if row.get(name) is not None
    }
    logprob = row.get(_LOGPROB)
    if logprob is not None and not (type(logprob) in (int, float) and -_MAX_NUMBER <= logprob <= 0):
        raise TableError(
            f"{position}: {_LOGPROB} must be a number of at most 0 or missing, got {logprob!r:.80}."
        )
    answer = Answer(
        None if error else text,
        error=error,
        logprob=logprob,
        **counts,
        **amounts,  # type: ignore[arg-type]
    )
    return row["query_id"], answer


def _parse_number(value: Any, name: str, position: str, *, is_whole: bool = False) -> float:
    # If the answer's length is not bounded, neither is the cost of a lost attempt.
    limit = math.inf if name == "unconfirmed_cost" else _MAX_NUMBER
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= limit or (is_whole and value != int(value)):
        raise TableError(
            f"{position}: {name} must be a non-negative {'whole' if is_whole else 'finite'} number,"
            f" got {value!r:.80}."
        )
    return float(value)
