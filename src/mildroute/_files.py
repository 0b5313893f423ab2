"""A folder of files that appears as a whole or not at all, and is read with bounds."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from mildroute.exceptions import ArtifactError


def read_file(folder: Path, name: str, *, limit: int) -> bytes:
    """Bytes of a regular file of at most ``limit`` bytes that lies in a folder.

    Example:
        >>> read_file(Path("no such folder"), "router.json", limit=10)
        Traceback (most recent call last):
        mildroute.exceptions.ArtifactError: no such folder must be a folder with a readable router.json, got: No such file or directory.
    """
    try:
        home = folder.resolve(strict=True)
        path = (home / name).resolve(strict=True)
        if not path.is_relative_to(home) or not path.is_file():
            raise ArtifactError(
                f"{name} in {folder} must be a regular file inside it, got a folder, device or outward link; copy the file."
            )
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size) if size <= limit else b""
    except (OSError, RuntimeError, ValueError) as broken:
        raise ArtifactError(f"{folder} must be a folder with a readable {name}, got: {_reason(broken)}; check the path.") from broken
    if size > limit:
        raise ArtifactError(f"{name} in {folder} may have {limit} bytes, got {size}; raise the limit if you trust it.")
    return data


def names_in(folder: Path) -> set[str]:
    """Names of what lies in a folder; none where it does not exist.

    Example:
        >>> names_in(Path("no such folder"))
        set()
    """
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as broken:
        raise ArtifactError(f"{folder} must be a folder, got: {_reason(broken)}; choose another one.") from broken


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files next to the folder, flush them to disk, then rename: a reader finds the old folder or the new, never a mixture.

    What the folder held before is deleted; while it is replaced there is a moment without either.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp()) / "router"
        >>> write_folder(folder, {"CARD.md": b"# A router"})
        >>> names_in(folder)
        {'CARD.md'}
    """
    try:
        target = folder.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_resolved(target, files)
    except (OSError, RuntimeError, ValueError) as broken:
        raise ArtifactError(f"{folder} must be writable, got: {_reason(broken)}; choose another folder.") from broken


def _write_resolved(target: Path, files: Mapping[str, bytes]) -> None:
    token = secrets.token_hex(8)
    fresh, old = target.with_name(f".{token}.new"), target.with_name(f".{token}.old")
    try:
        fresh.mkdir()
        for name, data in files.items():
            _write(fresh / name, data)
        _flush_folder(fresh)
        _swap(fresh, target, old)
        _flush_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _swap(fresh: Path, target: Path, old: Path) -> None:
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    try:
        fresh.rename(target)
    except BaseException:
        old.rename(target)
        raise


def _flush_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(broken: Exception) -> str:
    return getattr(broken, "strerror", None) or str(broken)
