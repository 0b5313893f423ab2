"""Record the answers of an expert, and replay them."""

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
from mildroute._jsonl import JsonlFile
from mildroute.exceptions import TableError
from mildroute.experts.base import Answer, CostEstimate, Expert, Query

__all__ = ["RecordingExpert", "ReplayExpert"]


# Answers that were given before, from a file or from memory, as an expert.


_PARQUET, _JSON_LINES = {".parquet", ".pq"}, {".jsonl", ".ndjson"}
_MOST = 1e15
_COUNTS = ("tokens_in", "tokens_out", "attempts")
_AMOUNTS = ("dollars", "latency", "unconfirmed_cost")
_LOGPROB = "logprob"


class ReplayExpert(Expert):
    """Replays answers; a query that has none gets an error.

    Args:
        name: Its name in tables.
        answers: Answers by query_id.
        version: Text that changes with the answers; by default a hash of them.

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
        self.version = _version_of(answers) if version is None else version

    @classmethod
    def read(cls, name: str, path: str | Path, *, version: str = "") -> ReplayExpert:
        """Read recorded answers from a Parquet or JSON-lines file.

        The file has query_id and text and, if known, tokens_in, tokens_out, dollars, latency,
        logprob and error. If several rows have the same query_id, the last one counts. An
        incomplete last line is left out.

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
            answers = dict(_answer_in(row, f"{str(path)!r}, {where}") for where, row in rows)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, pa.ArrowException) as error:
            raise TableError(
                f"{str(path)!r} cannot be read: {one_line(error)}; check the path and the file."
            ) from error
        return cls(
            name, answers, version=fingerprint("recorded", {"sha256": digest}, version=version)
        )

    def max_cost(self, query: Query) -> float:
        """What the recorded answer cost."""
        answer = self._answers.get(query.query_id)
        return 0.0 if answer is None else answer.dollars + answer.unconfirmed_cost

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """One answer for each query, in their order."""
        return [
            self._answers.get(query.query_id)
            or Answer(
                None, error=f"no answer to query {query.query_id!r:.80} was recorded", attempts=0
            )
            for query in batch
        ]


def _version_of(answers: Mapping[str, Answer]) -> str:
    digest = hashlib.sha256()
    for query_id in sorted(answers):
        digest.update(json.dumps([query_id, asdict(answers[query_id])]).encode() + b"\n")
    return fingerprint("recorded", {"sha256": digest.hexdigest()})


def _parquet_rows(path: Path) -> Iterator[tuple[str, Any]]:
    from pyarrow.parquet import ParquetFile

    known = {"query_id", "text", "error", _LOGPROB, *_COUNTS, *_AMOUNTS}
    with ParquetFile(path) as file:
        number = 0
        for batch in file.iter_batches(
            columns=[name for name in file.schema_arrow.names if name in known]
        ):
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


def _answer_in(row: Any, where: str) -> tuple[str, Answer]:
    if not isinstance(row, dict) or not isinstance(row.get("query_id"), str):
        raise TableError(
            f"{where}: each answer needs a text query_id, got {row!r:.80}; write query_id and text."
        )
    for name in ("text", "error"):
        if not isinstance(row.get(name), (str, type(None))):
            raise TableError(f"{where}: {name} must be text or missing, got {row[name]!r:.80}.")
    text, error = row.get("text"), row.get("error") or ""
    if error or text is None:
        text, error = None, error or "recorded without text"
    counts = {
        name: _number(row, name, where, whole=True) for name in _COUNTS if row.get(name) is not None
    }
    amounts = {name: _number(row, name, where) for name in _AMOUNTS if row.get(name) is not None}
    logprob = row.get(_LOGPROB)
    if logprob is not None and not (type(logprob) in (int, float) and -_MOST <= logprob <= 0):
        raise TableError(
            f"{where}: {_LOGPROB} must be a number of at most 0 or missing, got {logprob!r:.80}."
        )
    return row["query_id"], Answer(text, error=error, logprob=logprob, **counts, **amounts)


def _number(row: Mapping[str, Any], name: str, where: str, *, whole: bool = False) -> Any:
    value = row[name]
    # Without a bound on the answer, what a lost attempt may have cost is infinite.
    most = math.inf if name == "unconfirmed_cost" else _MOST
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most
    if not good or (whole and value != int(value)):
        raise TableError(
            f"{where}: {name} must be a {'whole' if whole else 'finite'} number, not negative, got"
            f" {value!r:.80}."
        )
    return int(value) if whole else float(value)


# Writes down every answer of an expert while it gives them.


class RecordingExpert(Expert):
    """An expert that returns the answers of another one and records them.

    It appends them to a JSON-lines file, which ``ReplayExpert`` replays. Every batch is written in
    one piece before it is returned. A line that an earlier run left incomplete is removed first.

    Args:
        expert: The expert that answers.
        path: The file; created if it does not exist.

    Example:
        >>> import asyncio, tempfile
        >>> from mildroute.experts.replay import ReplayExpert
        >>> path = Path(tempfile.mkdtemp(), "answers.jsonl")
        >>> async def record():
        ...     recorder = RecordingExpert(ReplayExpert("large", {"q1": Answer("4")}), path)
        ...     await recorder.answer([Query("q1", "2 + 2?")])
        ...     await recorder.close()
        >>> asyncio.run(record())
        >>> ReplayExpert.read("large", path).max_cost(Query("q1", "2 + 2?"))
        0.0
    """

    def __init__(self, expert: Expert, path: str | Path) -> None:
        self._expert, self._path = expert, Path(path)
        self._file: JsonlFile | None = None
        self.name = expert.name
        self.version = expert.version
        self.price = expert.price
        self.batch_size = expert.batch_size
        self.concurrency = expert.concurrency

    def max_cost(self, query: Query) -> float:
        """Upper bound of the recorded expert."""
        return self._expert.max_cost(query)

    def max_attempt_cost(self, query: Query) -> float:
        """Upper bound of one attempt of the recorded expert."""
        return self._expert.max_attempt_cost(query)

    def estimate_cost(self, query: Query) -> CostEstimate:
        """Estimate of the recorded expert."""
        return self._expert.estimate_cost(query)

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """Return the expert's answers once they are written."""
        answers = await self._expert.answer(batch)
        self._write(batch, answers)
        return answers

    async def close(self) -> None:
        """Close the file and the expert."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
        await self._expert.close()

    def _write(self, batch: Sequence[Query], answers: Sequence[Answer]) -> None:
        said = {"expert": self.name, "version": self.version}
        lines = [
            json.dumps({"query_id": query.query_id, **asdict(answer), **said}).encode()
            for query, answer in zip(batch, answers, strict=True)
        ]
        try:
            if self._file is None:
                self._file = JsonlFile.resume(self._path)
            self._file.append(*lines)
        except OSError as error:
            raise TableError(
                f"answers cannot be recorded in {str(self._path)!r}: {error}; free the disk or"
                " choose another path."
            ) from error
