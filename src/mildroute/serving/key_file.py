"""Adds a client to keys.yaml: its hash is written down, its key is shown once and kept nowhere."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from mildroute.errors import ArgumentError
from mildroute.serving.keys import Client, KeyRing, checked_name, hash_of, new_key, positive

__all__ = ["add_client"]


def add_client(path: str | Path, client: Client) -> str:
    """Make a key for a client and append its hash to a file, which is made if there is none.

    The file is replaced as a whole, so that a gateway never reads half of it; comments stay. A new file can be read by its owner alone.

    Args:
        path: ``keys.yaml``.
        client: Name and limits.

    Returns:
        The key, which cannot be found again.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "keys.yaml")
        >>> key = add_client(path, Client("team-a", dollars_per_day=5))
        >>> KeyRing.read(path).find(f"Bearer {key}")
        Client(name='team-a', requests_per_minute=None, dollars_per_day=5)
    """
    path = Path(path).resolve()
    limits = _checked_limits(client)
    beside = path.with_name(f".{path.name}.new")
    key = new_key()
    try:
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ArgumentError(f"{path.name} is being written by someone else; try again, or remove {beside.name!r} if nobody is.") from None
    except OSError as error:
        raise ArgumentError(f"{str(path)!r} cannot be written: {error.strerror}; check the folder.") from None
    try:
        with os.fdopen(file, "w", encoding="utf-8", newline="") as stream:
            stream.write(_content(path, client.name) + f"{json.dumps(client.name)}: {json.dumps({'hash': hash_of(key), **limits})}\n")
            stream.flush()
            os.fsync(stream.fileno())
        _check(beside, path, client.name)
        _keep_access(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return key


def _checked_limits(client: Client) -> dict[str, float]:
    checked_name(client.name)
    limits = {"requests_per_minute": client.requests_per_minute, "dollars_per_day": client.dollars_per_day}
    for name, limit in limits.items():
        if limit is not None:
            try:
                positive(limit)
            except ArgumentError as error:
                raise ArgumentError(f"{name}: {error}") from None
    return {name: limit for name, limit in limits.items() if limit is not None}


def _content(path: Path, name: str) -> str:
    """What the file holds, which is checked before anything is added to it."""
    if not path.exists():
        return ""
    if name in {client.name for client in KeyRing.read(path).clients}:
        raise ArgumentError(f"{path.name} has a client {name!r} already; choose another name, or remove its line to replace its key.")
    text = path.read_text(encoding="utf-8-sig")
    return text if not text or text.endswith("\n") else text + "\n"


def _check(beside: Path, path: Path, name: str) -> None:
    try:
        names = [client.name for client in KeyRing.read(beside).clients]
    except ArgumentError:
        names = []
    if name not in names:
        raise ArgumentError(f"nothing can be appended to {path.name}, for its clients are not written one below the other; write them so.")


def _keep_access(path: Path, beside: Path) -> None:
    """Whoever could read the file, such as the gateway's own user, still can."""
    if path.exists():
        before = path.stat()
        with contextlib.suppress(PermissionError, AttributeError):
            os.chown(beside, before.st_uid, before.st_gid)
        beside.chmod(before.st_mode & 0o777)
