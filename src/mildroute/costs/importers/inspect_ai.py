"""inspect_ai logs: ``.eval`` archives and ``.json`` files."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from mildroute.costs.importers.columns import Column, Record
from mildroute.costs.importers.log_format import LogFormat, file_head, read_json, to_text
from mildroute.exceptions import TableError

__all__ = ["INSPECT"]

# Identifier of zstd compression in zip archives.
_ZSTD = 93
# A member's header: 26 bytes, then the lengths of its name and its extra field.
_LOCAL_HEADER = struct.Struct("<26xHH")
# Largest sample to unpack, in bytes.
_MAX_MEMBER = 256 << 20
_UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,  # an encrypted archive
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def _is_inspect(path: Path) -> bool:
    if path.is_dir():
        return any(path.glob("*.eval"))
    return path.suffix == ".eval" or (path.suffix == ".json" and b'"eval_id"' in file_head(path))


def _inspect_records(path: Path) -> Iterator[Record]:
    if path.is_dir():
        for file in sorted(path.glob("*.eval")):
            yield from _inspect_records(file)
        return
    if path.suffix == ".eval":
        header, samples = _inspect_archive(path)
    else:
        document = read_json(path)
        header, samples = document, iter(document.get("samples") or ())
    for sample in samples:
        usage = sample.get("model_usage") or {}
        yield {
            **sample,
            "eval": header.get("eval", {}),
            "usage": next(iter(usage.values()), {}) if len(usage) == 1 else {},
        }


def _inspect_archive(path: Path) -> tuple[Mapping[str, Any], Iterator[Record]]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename: member for member in archive.infolist()}
            start = "header.json" if "header.json" in members else "_journal/start.json"
            header = json.loads(_read_member(archive, members[start]))
            samples = [
                json.loads(_read_member(archive, member))
                for name, member in sorted(members.items())
                if name.startswith("samples/") and name.endswith(".json")
            ]
    except _UNREADABLE as error:
        raise TableError(
            f"{str(path)!r} cannot be read as an inspect_ai log ({error}); is it truncated?"
        ) from error
    return header, iter(samples)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a member's content, which newer inspect_ai versions compress with zstd.

    The standard library supports zstd only since Python 3.14.
    """
    if member.file_size > _MAX_MEMBER:
        raise ValueError(f"{member.filename} would have {member.file_size:,} bytes")
    if member.compress_type != _ZSTD or archive.fp is None:
        return archive.read(member)
    archive.fp.seek(member.header_offset)
    local_header = archive.fp.read(_LOCAL_HEADER.size)
    name_length, extra_length = _LOCAL_HEADER.unpack(local_header)
    archive.fp.seek(name_length + extra_length, io.SEEK_CUR)
    compressed = archive.fp.read(member.compress_size)
    with pa.CompressedInputStream(pa.BufferReader(compressed), "zstd") as stream:
        return bytes(stream.read(member.file_size))


def _inspect_metrics(record: Record) -> Mapping[str, Any]:
    return {name: score.get("value") for name, score in (record.get("scores") or {}).items()}


INSPECT = LogFormat(
    "inspect_ai",
    _is_inspect,
    _inspect_records,
    (
        Column("input", "input", required=True, convert=to_text),
        Column("expert", "eval.model", required=True),
        Column("variant", "eval.model_generate_config.reasoning_effort"),
        Column("dollars", "usage.total_cost"),
        Column("latency", "working_time | total_time"),
        Column("input_tokens", "usage.input_tokens"),
        Column("output_tokens", "usage.output_tokens"),
        Column("answer", "output.completion | output.choices.0.message.content", convert=to_text),
        Column("group", "eval.task"),
        Column("reference", "target", convert=to_text),
        Column("error", "error.message"),
    ),
    _inspect_metrics,
)
