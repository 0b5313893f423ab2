"""File utilities: locks, atomic writes, bounded reads, and file systems for URLs."""

from __future__ import annotations

import fcntl
import importlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mildroute.exceptions import ArtifactError, MissingExtraError, TableError

# Seconds between attempts to acquire a lock.
_RETRY_INTERVAL_S = 0.05


def lock_now(file: int) -> bool | None:
    """Lock an open file.

    Return `False` if another process holds the lock, and `None` if the file system does not support
    locks. Closing the file or ending the process releases the lock.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network file systems do not support locks
        return None
    return True


@contextmanager
def file_lock(path: str | Path, seconds: float = 0.0, *, create: bool = False) -> Iterator[None]:
    """Hold a file's lock; wait for it up to ``seconds``.

    Raises:
        TableError: Another process held the lock the whole time.
    """
    file = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
    end = time.monotonic() + seconds
    try:
        while lock_now(file) is False:
            if time.monotonic() >= end:
                raise TableError(
                    f"one process at a time may write to {str(path)!r}, got it still in use after"
                    f" {seconds:g} s; wait, or stop the process that writes it, and run the same"
                    " command again."
                )
            time.sleep(_RETRY_INTERVAL_S)
        yield
    finally:
        os.close(file)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path, and move it to ``path`` if nothing fails."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_file(folder: Path, name: str, *, limit: int) -> bytes:
    """Return the bytes of a regular file in a folder; raise an error above ``limit`` bytes."""
    try:
        root = folder.resolve(strict=True)
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root) or not path.is_file():
            raise ArtifactError(
                f"{name} in {folder} must be a regular file inside it, got a folder, device or"
                " outward link; copy the file."
            )
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(size) if size <= limit else b""
    except (OSError, RuntimeError, ValueError) as error:
        raise ArtifactError(
            f"{folder} must be a folder with a readable {name}, got: {_reason(error)}; check the"
            " path."
        ) from error
    if size > limit:
        raise ArtifactError(
            f"{name} in {folder} may have {limit} bytes, got {size}; raise the limit if you"
            " trust it."
        )
    return data


def names_in(folder: Path) -> set[str]:
    """Return the names in a folder; empty if it does not exist."""
    try:
        return {path.name for path in folder.iterdir()}
    except FileNotFoundError:
        return set()
    except (OSError, ValueError) as error:
        raise ArtifactError(
            f"{folder} must be a folder, got: {_reason(error)}; choose another one."
        ) from error


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Replace a folder by a new one with these files.

    The files are written next to the folder, flushed to disk and renamed, so that a reader finds
    the old folder or the new one and never a mixture. The old content is deleted. For a moment
    during the swap, neither folder exists.
    """
    try:
        target = folder.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_resolved(target, files)
    except (OSError, RuntimeError, ValueError) as error:
        raise ArtifactError(
            f"{folder} must be writable, got: {_reason(error)}; choose another folder."
        ) from error


def _write_resolved(target: Path, files: Mapping[str, bytes]) -> None:
    token = secrets.token_hex(8)
    new, old = target.with_name(f".{token}.new"), target.with_name(f".{token}.old")
    try:
        new.mkdir()
        for name, data in files.items():
            _write(new / name, data)
        _flush_folder(new)
        _swap(new, target, old)
        _flush_folder(target.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _swap(new: Path, target: Path, old: Path) -> None:
    if not target.exists():
        new.rename(target)
        return
    target.rename(old)
    try:
        new.rename(target)
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


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def cache_folder(name: str) -> Path:
    """Return this package's folder in the user's cache, without creating it."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "mildroute" / name


def one_line(error: BaseException) -> str:
    """Return another library's error as one short line."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return text if len(text) <= 300 else text[:300] + "..."


def without_credentials(text: str) -> str:
    """Remove everything before the host from URLs in a text, because it may contain keys."""
    return re.sub("//[^/@ ]*@", "//", text)


def open_location(target: str | Path) -> tuple[Any, str]:
    """Return a pyarrow file system and the path in it, for a path or a URL."""
    import pyarrow.fs as pafs

    target = str(target).removeprefix("file://")
    if "://" in target:
        system, path, _ = open_filesystem(target)
        return system, path.rstrip("/")
    return pafs.LocalFileSystem(), str(Path(target).expanduser().absolute())


def open_filesystem(url: str) -> tuple[Any, str, Any]:
    """Return a pyarrow file system for a URL, the path in it, and fsspec's glob or `None`.

    The file system is fsspec's if the scheme's package is installed, else pyarrow's.
    """
    import pyarrow as pa
    import pyarrow.fs as pafs

    safe_url = without_credentials(url)
    try:
        system, path = importlib.import_module("fsspec.core").url_to_fs(url)
        return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(path), system.glob
    except ImportError as error:
        missing = one_line(error)
    except (ValueError, OSError) as error:
        raise _unreachable(safe_url, error) from None
    try:
        system, path = pafs.FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException) as error:
        if "nrecognized filesystem" in str(error):
            raise MissingExtraError(f"{safe_url!r} needs another package: {missing}") from None
        raise _unreachable(safe_url, error) from None
    return system, path, None


def _unreachable(safe_url: str, error: Exception) -> TableError:
    reason = without_credentials(one_line(error))
    return TableError(f"{safe_url!r} cannot be reached: {reason}; check the address.")
