"""The base of evaluation-log formats, with helpers that their readers share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mildroute.costs.importers.columns import Column, Record
from mildroute.exceptions import TableError

__all__ = [
    "LogFormat",
    "file_head",
    "first_record",
    "read_json",
    "read_json_lines",
    "to_score",
    "to_text",
]

# Grade letters and their scores: correct, incorrect, partially correct, no answer.
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}


@dataclass(frozen=True)
class LogFormat:
    """An evaluation-log format.

    Attributes:
        name: Name of the tool.
        matches: Function that returns whether a file or folder looks like this format.
        records: Function that yields the records of a file or folder, one per answer, with the
            context that the columns need.
        columns: Columns of a record: fields of an outcome; ``variant``, which is appended to the
            expert's name; and ``error``, which marks answers that count as not scored.
        metrics: Function that returns a record's scores by name.
    """

    name: str
    matches: Callable[[Path], bool]
    records: Callable[[Path], Iterator[Record]]
    columns: tuple[Column, ...]
    metrics: Callable[[Record], Mapping[str, Any]]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise TableError(
            f"{str(path)!r} cannot be read as JSON ({' '.join(str(error).split())}); is the log"
            " truncated?"
        ) from error


def read_json_lines(path: Path) -> Iterator[Any]:
    """Yield the documents of a JSON Lines file."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _parse_line(line, path, number)
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{str(path)!r} cannot be read: {error}; check the file.") from error


def _parse_line(line: str, path: Path, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TableError(
            f"{str(path)!r}, line {number}, is not JSON ({error}); is the log truncated?"
        ) from error


def first_record(path: Path) -> Any:
    """Return the first document of a JSON Lines file, or `None`."""
    if not path.is_file():
        return None
    try:
        return next(read_json_lines(path), None)
    except TableError:
        return None


def to_text(value: Any) -> str:
    """Return a prompt as text: chat messages become their contents, other values JSON.

    Example:
        >>> to_text([{"role": "user", "content": "2+2?"}])
        '2+2?'
    """
    if isinstance(value, str):
        messages = _messages_in(value)
        return value if messages is None else to_text(messages)
    if isinstance(value, list) and all(isinstance(m, Mapping) and "content" in m for m in value):
        return "\n".join(_content(message["content"]) for message in value)
    return json.dumps(value, ensure_ascii=False)


def _messages_in(text: str) -> list[Any] | None:
    """Return the chat messages in a JSON text, or `None` if it holds none."""
    if not text.lstrip().startswith("[{"):
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if all(isinstance(m, dict) and "content" in m for m in value) else None


def _content(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return str(content)


def file_head(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(200_000)


def to_score(value: Any) -> float | None:
    """Return a score as a number, or `None` if the answer was not scored.

    Example:
        >>> [to_score(value) for value in (True, "C", 0.5, float("nan"), "unclear")]
        [1.0, 1.0, 0.5, None, None]
    """
    if isinstance(value, str):
        return _GRADES.get(value)
    if value is None or isinstance(value, (Sequence, Mapping)):
        return None
    number = float(value)
    return number if number == number else None
