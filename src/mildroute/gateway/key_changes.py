"""Changes to ``keys.yaml``.

A changed entry becomes one line; all other lines, including comments, are preserved. The file is
replaced atomically, so that a gateway never reads half of it, and only if no other entry changes.
Only the owner can read a newly created file.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mildroute._checks import nearest
from mildroute._yaml import read_document
from mildroute.exceptions import ArgumentError
from mildroute.gateway.key_file import ClientSettings, read_key_file, validate_name
from mildroute.gateway.keys import hash_key, new_key

__all__ = ["add_client", "describe_clients", "revoke_key"]


def add_client(path: str | Path, name: str, **settings: Any) -> str:
    """Create a key for a new client and add its hash to a file, which may not exist yet.

    Args:
        path: Path of ``keys.yaml``.
        name: Name of the client.
        settings: Settings as in the file, such as ``dollars_per_day=5``; ``None`` values are
            omitted.

    Returns:
        The key.
    """
    validate_name(name)
    key = new_key()
    entry = {setting: value for setting, value in settings.items() if value is not None}
    with _replacing(path) as (target, replacement):
        if name in _read_if_exists(target):
            raise ArgumentError(
                f"{target.name} already has a client {name!r}; choose another name, or revoke its"
                " key first."
            )
        _write_entry(target, replacement, name, {"hash": hash_key(key)} | entry)
    return key


def revoke_key(path: str | Path, name: str) -> None:
    """Remove a client, so that its key stops working."""
    with _replacing(path) as (target, replacement):
        clients = _read_if_exists(target)
        if name not in clients:
            hint = nearest(name, clients) if clients else "see 'mildroute keys list'."
            raise ArgumentError(f"{target.name} has no client {name!r:.60}; {hint}")
        _write_entry(target, replacement, name, None)


def describe_clients(path: str | Path) -> list[dict[str, Any]]:
    """Return the name and settings of each client of a file, without hashes."""
    rows = []
    for name, client in read_key_file(path).items():
        settings = {
            "requests_per_minute": client.requests_per_minute,
            "dollars_per_day": client.dollars_per_day,
            "models": None if client.models is None else list(client.models),
        }
        limits = {setting: value for setting, value in settings.items() if value is not None}
        rows.append({"name": name} | limits)
    return rows


def _read_if_exists(path: Path) -> dict[str, ClientSettings]:
    return read_key_file(path) if path.exists() else {}


@contextlib.contextmanager
def _replacing(path: str | Path) -> Iterator[tuple[Path, Path]]:
    """Yield a file and its empty replacement in the same folder, which locks out other writers."""
    path = Path(path).resolve()
    replacement = path.with_name(f".{path.name}.new")
    try:
        os.close(os.open(replacement, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise ArgumentError(
            f"{path.name} is being written by another process; try again, or remove"
            f" {replacement.name!r} if no such process is running."
        ) from None
    except OSError as error:
        raise ArgumentError(
            f"{str(path)!r} cannot be written: {error.strerror}; check the folder."
        ) from None
    try:
        yield path, replacement
    finally:
        replacement.unlink(missing_ok=True)


def _write_entry(path: Path, replacement: Path, name: str, entry: Mapping[str, Any] | None) -> None:
    """Write the entry of a client to a file, or remove the client if it is ``None``."""
    expected = {key: value for key, value in _read_if_exists(path).items() if key != name}
    line = "" if entry is None else f"{json.dumps(name)}: {json.dumps(entry)}\n"
    with replacement.open("w", encoding="utf-8", newline="") as stream:
        stream.write(_with_entry(path, name, line))
        stream.flush()
        os.fsync(stream.fileno())
    try:
        clients = read_key_file(replacement)
    except ArgumentError as error:
        message = str(error).replace(replacement.name, path.name)
        if "not valid YAML" not in message:
            raise ArgumentError(message) from None
        clients = None
    if clients is not None and entry is not None:
        expected[name] = ClientSettings(**entry)
    if clients != expected:
        raise ArgumentError(
            f"{path.name} cannot be changed, because its clients are not on separate lines; start a"
            " new line for each client."
        )
    _copy_access(path, replacement)
    replacement.replace(path)


def _with_entry(path: Path, name: str, line: str) -> str:
    """Return the file's text with this line in place of the client's entry, or at the end."""
    if not path.exists():
        return line
    lines = path.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    document = read_document(path)
    first_lines = sorted(document.line((key,)) - 1 for key in document.value or ())
    start = len(lines)
    end = start
    if document.value and name in document.value:
        start = document.line((name,)) - 1
        end = next((first for first in first_lines if first > start), end)
        # Comments and empty lines between two entries belong to the second.
        while end > start + 1 and lines[end - 1].lstrip()[:1] in ("", "#"):
            end -= 1
    return "".join([*lines[:start], line, *lines[end:]])


def _copy_access(path: Path, replacement: Path) -> None:
    """Copy owner and permissions to the new file, so that the gateway can still read it."""
    if path.exists():
        status = path.stat()
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(replacement, status.st_uid, status.st_gid)
        replacement.chmod(status.st_mode & 0o777)
