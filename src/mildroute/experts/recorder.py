"""Writes down every answer of an expert while it gives them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from mildroute.costs.prices import Price
from mildroute.errors import TableError
from mildroute.experts.protocol import Answer, Expert, Query

__all__ = ["Recorder"]


class Recorder:
    """An expert that passes on the answers of another one and appends them to a JSON-lines file, which ``Recorded`` replays.

    Every batch is written before it is returned, in one piece. A line that an earlier run did not finish is removed first.

    Args:
        expert: Who answers.
        path: The file; it is made if it does not exist.

    Example:
        >>> import asyncio, tempfile
        >>> from mildroute.experts.recorded import Recorded
        >>> path = Path(tempfile.mkdtemp(), "answers.jsonl")
        >>> async def ask():
        ...     recorder = Recorder(Recorded("large", {"q1": Answer("4")}), path)
        ...     await recorder.answer([Query("q1", "2 + 2?")])
        ...     await recorder.close()
        >>> asyncio.run(ask())
        >>> Recorded.read("large", path).worst_dollars(Query("q1", "2 + 2?"))
        0.0
    """

    def __init__(self, expert: Expert, path: str | Path) -> None:
        self._expert, self._path = expert, Path(path)
        self._file: BinaryIO | None = None
        self.name: str = expert.name
        self.version: str = expert.version
        self.price: Price | None = expert.price
        self.batch_size: int = expert.batch_size
        self.concurrency: int = expert.concurrency

    def worst_dollars(self, query: Query) -> float:
        """At most what asking this query costs, if the expert knows; otherwise infinite."""
        bound = getattr(self._expert, "worst_dollars", None)
        return float("inf") if bound is None else float(bound(query))

    async def answer(self, batch: Sequence[Query]) -> list[Answer]:
        """The expert's answers, once they are written."""
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
        lines = [json.dumps({"query_id": query.query_id, **asdict(answer), **said}) for query, answer in zip(batch, answers, strict=True)]
        try:
            if self._file is None:
                self._file = _opened(self._path)
            self._file.write("".join(line + "\n" for line in lines).encode())
        except OSError as error:
            raise TableError(
                f"answers cannot be recorded in {str(self._path)!r}: {error}; free the disk or choose another path."
            ) from error


def _opened(path: Path) -> BinaryIO:
    """For appending, without a buffer, behind the last whole line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab+", buffering=0)
    end = file.seek(0, os.SEEK_END)
    while end and file.seek(end - 1) is not None and file.read(1) != b"\n":
        end -= 1
    file.truncate(end)
    return file
