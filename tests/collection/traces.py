"""Looks for a key in all that a run left behind: raw bytes, and what compressed files hold.

assert traces_of(key, folder, ray_session_folder) == []
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pyarrow.parquet as pq

# Characters of a key that tell it from chance; a part of a key is a leak, too.
_PIECE = 12


def traces_of(key: str, *places: Path) -> list[str]:
    """Where a key, a part of it, or a usual code of it stands in files and folders, as "path.

    Spelling".
    """
    wanted = spellings_of(key)
    files = [
        file
        for place in places
        for file in ([place] if place.is_file() else sorted(place.rglob("*")))
        if file.is_file()
    ]
    return [f"{file}: {found}" for file in files for found in _found(wanted, file)]


def traces_in_text(key: str, text: str) -> list[str]:
    """The spellings of a key that stand in a text."""
    return _spellings_in(spellings_of(key), text.encode("utf-8", "surrogatepass"))


def spellings_of(key: str) -> dict[str, bytes]:
    """Pieces of the key as it is, and what every code of it has in common, in small letters."""
    found = {
        f"characters from {start}": key[start : start + _PIECE]
        for start in range(0, len(key) - _PIECE + 1, _PIECE // 2)
    }
    found |= {
        "JSON": json.dumps(key)[1:-1],
        "URL": quote(key, safe=""),
        "form": quote_plus(key),
        "HTML": html.escape(key),
    }
    found["hexadecimal"] = key.encode().hex()
    for before in range(3):
        inside = base64.b64encode(bytes(before) + key.encode()).rstrip(b"=").decode()[4:-2]
        found |= {
            f"base64 after {before}": inside,
            f"URL base64 after {before}": inside.replace("+", "-").replace("/", "_"),
        }
    return {name: spelling.lower().encode() for name, spelling in found.items()}


def _found(wanted: dict[str, bytes], file: Path) -> Iterator[str]:
    raw = file.read_bytes()
    yield from _spellings_in(wanted, str(file).encode() + raw)
    if file.suffix == ".parquet":
        yield from _spellings_in(wanted, _decoded(file))
    if raw.startswith(b"\x1f\x8b"):
        try:
            yield from _spellings_in(wanted, gzip.decompress(raw))
        except (OSError, EOFError, zlib.error) as error:
            yield f"cannot be searched: {error}"


def _spellings_in(wanted: dict[str, bytes], content: bytes) -> list[str]:
    folded = content.lower()
    return [name for name, spelling in wanted.items() if spelling in folded]


def _decoded(file: Path) -> bytes:
    """All names, values and metadata of a Parquet file."""
    table = pq.read_table(file)
    parts: list[object] = [table.schema.metadata, pq.read_metadata(file).metadata]
    for column in table.columns:
        parts += (
            column.cast(pa.string()).to_pylist()
            if not pa.types.is_nested(column.type)
            else column.to_pylist()
        )
    return "\n".join([*table.column_names, *map(str, parts)]).encode("utf-8", "surrogatepass")
