"""Routers in object storage or on the Hugging Face Hub: ``s3://``, ``hf://`` and similar URLs."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mildroute._files import cache_folder, one_line, open_location, without_credentials
from mildroute.exceptions import ArtifactError, MildrouteError
from mildroute.persistence.artifact import MANIFEST, MAX_MANIFEST, WEIGHTS, read_manifest
from mildroute.persistence.manifest import check_manifest, parse_document

__all__ = ["RouterNotFoundError", "fetch_router", "is_url", "remote_digest"]

_MAX_WEIGHTS = 4 << 30
_COPY_BYTES = 1 << 20


class RouterNotFoundError(ArtifactError):
    """There is no router at a URL."""


def is_url(location: str | os.PathLike[str]) -> bool:
    """Return whether a location is a URL rather than a local folder."""
    return isinstance(location, str) and "://" in location


def remote_digest(url: str) -> str:
    """Return the digest of the router at a URL; it changes when the router is replaced.

    Raises:
        RouterNotFoundError: There is no router yet.
        ArtifactError: The router cannot be read, or the folder contains something else.
    """
    with _remote_folder(url) as (system, folder):
        return str(_manifest(system, folder)[1]["sha256"])


def fetch_router(url: str, cache: Path | None = None) -> Path:
    """Download a stored router, unless the cache already contains it.

    Args:
        url: URL of the router's folder, with any scheme that fsspec or pyarrow can read, such as
            ``hf://acme/router`` or ``s3://bucket/router``.
        cache: Folder of routers by their digests; defaults to ``mildroute/routers`` in the user's
            cache.

    Returns:
        A local folder with the router, checked against the digests of its manifest.

    Raises:
        RouterNotFoundError: There is no router at the URL.
        ArtifactError: The router cannot be read, or its files do not belong together.
    """
    cache = cache_folder("routers") if cache is None else cache
    with _remote_folder(url) as (system, folder):
        content, manifest = _manifest(system, folder)
        target = cache / str(manifest["sha256"])
        if _is_intact(target):
            return target
        download = _new_folder(cache)
        try:
            (download / MANIFEST).write_bytes(content)
            _download(system, posixpath.join(folder, WEIGHTS), download / WEIGHTS)
            if not _is_intact(download):
                raise ArtifactError(
                    f"{WEIGHTS} at {without_credentials(url)} must be the file that {MANIFEST}"
                    " names, but its sha256 differs; upload the router again."
                )
            _install(download, target)
        finally:
            shutil.rmtree(download, ignore_errors=True)
    return target


@contextlib.contextmanager
def _remote_folder(url: str) -> Iterator[tuple[Any, str]]:
    """Open the file system of a URL, and turn its errors into ArtifactErrors."""
    try:
        system, path = open_location(url)
        yield system, path
    except ArtifactError:
        raise
    except FileNotFoundError:
        raise RouterNotFoundError(
            f"{without_credentials(url)} must be the folder of a stored router, but there is no"
            f" {MANIFEST}; upload a router first, or check the address."
        ) from None
    except (MildrouteError, OSError, ValueError) as error:
        # pyarrow's own errors are OSErrors or ValueErrors.
        raise ArtifactError(
            f"{without_credentials(url)} cannot be read: {without_credentials(one_line(error))};"
            " check the address and its permissions."
        ) from None


def _manifest(system: Any, folder: str) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes and the checked content of a remote ``router.json``."""
    with system.open_input_stream(posixpath.join(folder, MANIFEST)) as file:
        content = bytes(file.read(MAX_MANIFEST + 1))
    if len(content) > MAX_MANIFEST:
        raise ArtifactError(f"{MANIFEST} must have at most {MAX_MANIFEST:,} bytes.")
    manifest = parse_document(content)
    check_manifest(manifest)
    return content, manifest


def _download(system: Any, source: str, target: Path) -> None:
    remaining = _MAX_WEIGHTS
    with system.open_input_stream(source) as file, target.open("wb") as copy:
        while chunk := file.read(_COPY_BYTES):
            remaining -= len(chunk)
            if remaining < 0:
                raise ArtifactError(f"{WEIGHTS} must have at most {_MAX_WEIGHTS:,} bytes.")
            copy.write(chunk)


def _is_intact(folder: Path) -> bool:
    """Return whether a folder has a manifest and the weights that it names."""
    try:
        manifest = read_manifest(folder)
        with (folder / WEIGHTS).open("rb") as file:
            weights = hashlib.file_digest(file, "sha256").hexdigest()
    except (ArtifactError, OSError):
        return False
    return bool(weights == manifest["weights"]["sha256"])


def _new_folder(cache: Path) -> Path:
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
        return Path(tempfile.mkdtemp(prefix=".", dir=cache))
    except OSError as error:
        raise ArtifactError(
            f"routers from URLs need a writable cache, got {cache}: {error.strerror}; set"
            " XDG_CACHE_HOME."
        ) from error


def _install(download: Path, target: Path) -> None:
    """Move a downloaded router to its folder in the cache."""
    try:
        download.rename(target)
    except OSError:
        # Another process was faster and may be reading its copy. Replace only a damaged copy.
        if not _is_intact(target):
            shutil.rmtree(target, ignore_errors=True)
            download.rename(target)
